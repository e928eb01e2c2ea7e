"""The gateway of a distributed deployment: `skillbus gateway` before workers, on real servers."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourcesListChanged

from config.inbound_settings import WebhookSettings
from graph.records import Source
from skills.events import QueryAsked, new_event
from tasks.journal.protocol import DeadLetter, new_dead_letter_id
from tasks.sources.uploads.store import open_upload_store
from tests.support.program.program import NO_TLS, Process, wait_for
from tests.support.program.secrecy import made_up
from tests.support.samples.library import write_topics
from tests.support.servers.distributed import Deployments, Distributed, deployments
from tests.support.servers.mcp import ask, in_process, over_http, read_bytes, text_of
from tests.support.servers.servers import ServerControls
from tests.support.servers.webhooks import github, github_push, gitlab, gitlab_push
from workers.backend.distributed import DistributedBackend
from workers.webhooks.delivery import DeliveryError
from workers.webhooks.handler import handle_delivery

__all__ = ["deployments"]

TASK = "true a bicycle wheel"
BEST = "crafts:bicycle-repair"
SKILL = "---\nname: sundial\ndescription: Set up a sundial.\n---\n# Sundial\n\nPoint it north.\n"
TEXT = {"Content-Type": "text/markdown"}
OPEN_QUERIES = 6
SECRET = made_up("of all hosts")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway")


@pytest.fixture(scope="module")
def distributed(deployments: Deployments, base: Path) -> Iterator[Distributed]:
    """All workers, on Redis; few queries may wait at once."""
    made = deployments(
        SKILLBUS_WORKERS__OPEN_QUERIES=str(OPEN_QUERIES),
        SKILLBUS_SERVERS__TIMEOUT_SECONDS="5",
        SKILLBUS_UPLOADS__FOLDER=str(base / "uploads"),
    )
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def gateway(distributed: Distributed, base: Path) -> Iterator[tuple[httpx.Client, Process]]:
    """An administrator's client, and the process; directories below `base` can become sources."""
    with distributed.gateway(SKILLBUS_GATEWAY__ROOTS=json.dumps([str(base)])) as opened:
        yield opened
    assert "Traceback" not in opened[1].text("err")


@pytest.fixture(scope="module")
def client(gateway: tuple[httpx.Client, Process]) -> httpx.Client:
    return gateway[0]


@pytest.fixture(scope="module")
def agent(distributed: Distributed) -> str:
    """The token of an agent, which may read."""
    return distributed.skillbus("tokens", "add", "agent").out.strip()


def done(client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    """What became of what was accepted."""
    assert answer.status_code == 202, answer.text
    place = answer.headers["location"]

    def ended() -> dict[str, Any] | None:
        reported: dict[str, Any] = client.get(place).json()
        return reported if reported["state"] != "accepted" else None

    found: dict[str, Any] = wait_for(ended, 60)
    return found


def asked_to_retry(answer: httpx.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) >= 1


# -- every resource
def test_a_directory_becomes_a_source(
    client: httpx.Client, distributed: Distributed, base: Path
) -> None:
    root = write_topics(base / "crafts")
    accepted = client.post("/v1/sources", json={"source_id": "crafts", "root": str(root)})
    assert done(client, accepted)["state"] == "done"
    distributed.wait_done()
    assert client.get("/v1/sources/crafts").json()["published"] == 10
    assert client.get(f"/v1/skills/{BEST}").json()["passages"]


def test_a_query_is_answered_at_once_when_preferred(client: httpx.Client) -> None:
    answer = client.post("/v1/queries", json={"task": TASK}, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200
    assert answer.json()["bundle"]["skills"][0]["skill_id"] == BEST
    assert client.get(answer.headers["location"]).json() == answer.json()


def test_the_console_shows_the_library_and_asks_it(client: httpx.Client) -> None:
    pages = {
        "/console/library": "10</span> skills, by id",
        "/console/library?q=bicyc": BEST,
        f"/console/skills/{BEST}": "Prepare the bicycle repair",
        f"/console/skills/{BEST}?tab=links": "Links",
        f"/console/skills/{BEST}?tab=revisions": "published",
        "/console/sources": "crafts",
        "/console/work": "source changed",
        "/console/use": "Queries",
        f"/console/skills/{BEST}?tab=use": "chosen",
        f"/console/graph?skill={BEST}&depth=2": BEST,
        "/console/review?state=any": "Nothing",
        "/console/quality": "skillbus eval",
        "/console/quality/labels": "Labelled prompts",
        "/console/settings": "neo4j",
    }
    for path, shown in pages.items():
        page = client.get(path)
        assert page.status_code == 200, path
        assert shown in page.text, path
    [token] = re.findall(r'name="csrf_token" value="(\w+)"', client.get("/console/ask").text)[-1:]
    origin = {"Origin": f"http://{client.base_url.netloc.decode()}"}
    asked = {"csrf_token": token, "task": TASK}
    answer = client.post("/console/ask", data=asked, headers=origin).headers["location"]
    wait_for(lambda: 'id="bundle"' in client.get(answer).text, 60)
    assert BEST in client.get(answer).text
    query_id = answer.partition("?")[0].rpartition("/")[2]
    assert "mass" in client.get(f"/console/graph?query={query_id}&show=walk").text
    [event] = re.findall(r'href="(/console/work/events/[^"]+)"', client.get("/console/work").text)
    for task in ("plan", "ingest", "link"):
        assert f'<th scope="row">{task}</th>' in client.get(event).text
    client.cookies.clear()


def test_a_session_of_the_console_ends_at_every_gateway(
    client: httpx.Client, distributed: Distributed
) -> None:
    secret = distributed.skillbus("tokens", "add", "ana").out.strip()
    with distributed.gateway() as (other, _), httpx.Client(timeout=60, verify=NO_TLS) as visitor:
        here, there = (str(one.base_url).rstrip("/") for one in (client, other))

        def send(url: str, page: str, form: str, **fields: str) -> httpx.Response:
            shown = visitor.get(f"{url}/console/{page}").text
            [token, *_] = re.findall(r'name="csrf_token" value="(\w+)"', shown)
            data = {"csrf_token": token, **fields}
            return visitor.post(f"{url}/console/{form}", data=data, headers={"Origin": url})

        # A visitor's cookies are sent to all ports of a host.
        send(here, "login", "login", token=secret)
        send(here, "ask", "ask", task="fire a raku kiln")
        assert "fire a raku kiln" in visitor.get(f"{there}/console/ask").text
        copied = dict(visitor.cookies)
        send(there, "ask", "logout")
        visitor.cookies.clear()
        visitor.cookies.update(copied)
        for url in (here, there):
            assert visitor.get(f"{url}/console/ask").status_code == 303
        visitor.cookies.clear()
        send(here, "login", "login", token=secret)
        assert visitor.get(f"{there}/console/ask").status_code == 200
        distributed.skillbus("tokens", "revoke", "ana")
        assert visitor.get(f"{there}/console/ask").status_code == 303


def test_the_stages_of_a_query_are_sent_as_events(client: httpx.Client) -> None:
    query_id = client.post("/v1/queries", json={"task": TASK}).json()["id"]
    with client.stream("GET", f"/v1/queries/{query_id}/events") as stream:
        lines = [line for line in stream.iter_lines() if line.startswith(("event:", "data:"))]
    names = [line.removeprefix("event: ") for line in lines[::2]]
    assert (set(names[:-1]), names[-1]) == ({"stage"}, "done")
    assert json.loads(lines[-1].removeprefix("data: "))["bundle"]["query_id"] == query_id


async def _asks(client: Client) -> str:
    """What an agent gets that finds a skill, reads on and looks at the list."""
    reported: list[str | None] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        reported.append(message)

    found = await client.call_tool(
        "find_skills", {"task": TASK, "budget": 900}, progress_callback=tell
    )
    assert not found.is_error, text_of(found)
    assert str(reported[-1]).startswith("done: ")
    read = await client.call_tool("read_skill", {"skill_id": BEST, "lines": "2"})
    assert "name: bicycle-repair" in text_of(read)
    assert BEST in [one.name for one in (await client.list_resources()).resources]
    wrong = await client.call_tool("read_skill", {"skill_id": "crafts:../bicycle-repair"})
    assert wrong.is_error
    assert found.structured_content is not None
    return str(found.structured_content["text"])


def test_agents_ask_over_mcp(distributed: Distributed, client: httpx.Client, agent: str) -> None:
    address = str(client.base_url.join("/mcp"))

    async def ask() -> set[str]:
        texts = set()
        for mode in ("auto", "legacy"):
            async with over_http(address, agent, mode) as asking:
                texts.add(await _asks(asking))
        async with in_process(distributed.settings) as asking:  # as `skillbus mcp` does
            texts.add(await _asks(asking))
        return texts

    (text,) = anyio.run(ask)
    assert BEST in text


def test_hosts_load_whole_skills(
    distributed: Distributed, client: httpx.Client, agent: str
) -> None:
    address = str(client.base_url.join("/mcp"))

    async def load(host: Client) -> list[str]:
        loaded = []
        for skill in (await ask(host, "skills/list"))["skills"]:
            assert (await ask(host, "skills/get", uri=skill["uri"]))["skill"] == skill
            for file in skill["resources"]:
                content = await read_bytes(host, file["uri"])
                digest = "sha256:" + hashlib.sha256(content).hexdigest()
                assert (len(content), digest) == (file["size"], file["digest"])
            loaded.append(skill["uri"])
        return loaded

    async def work() -> None:
        async with over_http(address, agent) as host, in_process(distributed.settings) as other:
            loaded = await load(host)
            assert "skill://crafts/bicycle-repair/SKILL.md" in loaded
            assert await load(other) == loaded
            with anyio.fail_after(60):
                async with host.listen(resources_list_changed=True) as stream:
                    where = "/v1/skills?source=values&path=moon"
                    text = SKILL.replace("sundial", "moon")
                    await anyio.to_thread.run_sync(
                        lambda: done(client, client.post(where, content=text, headers=TEXT))
                    )
                    assert isinstance(await anext(aiter(stream)), ResourcesListChanged)
            added = "skill://values/moon/SKILL.md"
            assert await read_bytes(other, added) == text.encode()

    anyio.run(work)
    assert done(client, client.delete("/v1/skills/values:moon"))["state"] == "done"


def test_skills_come_by_value_and_go(client: httpx.Client, distributed: Distributed) -> None:
    where = "/v1/skills?source=values&path=sundial"
    assert done(client, client.post(where, content=SKILL, headers=TEXT))["state"] == "done"
    distributed.wait_done()
    assert client.get("/v1/skills/values:sundial").json()["state"] == "published"
    assert done(client, client.delete("/v1/skills/values:sundial"))["state"] == "done"
    assert open_upload_store(distributed.settings).list_paths("values") == ([], [])


def test_a_worker_without_the_folder_says_so_and_loses_nothing(
    client: httpx.Client, distributed: Distributed, tmp_path: Path
) -> None:
    distributed.stop("ingest")
    distributed.start("ingest", SKILLBUS_UPLOADS__FOLDER=str(tmp_path / "elsewhere"))
    accepted = client.post("/v1/skills?source=values&path=moondial", content=SKILL, headers=TEXT)
    wait_for(lambda: "share one folder" in str(distributed.log("ingest")), 60)
    assert client.get(accepted.headers["location"]).json()["state"] == "accepted"
    distributed.stop("ingest")
    distributed.start("ingest")
    assert done(client, accepted)["state"] == "done"
    distributed.wait_done()
    assert client.get("/v1/skills/values:moondial").json()["state"] == "published"


def test_dead_letters_are_seen_and_dropped(client: httpx.Client, distributed: Distributed) -> None:
    letter = DeadLetter(new_dead_letter_id(1.0), "", (), "not JSON", 0, "", "{", time.time())
    with distributed.backend() as remote:
        remote.journal.add_dead_letter(letter)
    assert client.get("/v1/letters").json()["letters"][0]["reason"] == "not JSON"
    refused = client.post(f"/v1/letters/{letter.id}/retry")
    assert (refused.status_code, "cannot be retried" in refused.text) == (400, True)
    assert client.delete(f"/v1/letters/{letter.id}").status_code == 204
    assert client.get("/v1/letters").json() == {"letters": [], "total": 0}


def test_status_is_what_the_command_shows(client: httpx.Client, distributed: Distributed) -> None:
    distributed.wait_done()
    served = client.get("/v1/status").json()
    shown = distributed.skillbus("status", "--json").data
    for reported in (served, shown):
        for server in reported["servers"]:
            assert server.pop("seconds") >= 0
        for source in reported["sources"]:
            source.pop("lag_seconds")
    assert served == shown
    assert [server["server"] for server in served["servers"] if server["up"]] == [
        "broker",
        "redis",
        "elasticsearch",
        "neo4j",
    ]
    figures = client.get("/metrics").text
    assert 'skillbus_server_up{server="elasticsearch"} 1.0' in figures
    assert 'skillbus_skills{state="published"} 11.0' in figures


def test_a_replay_of_a_delivery_is_refused_by_every_process(
    distributed: Distributed, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    webhooks = WebhookSettings(github=(file,), gitlab=(file,))
    settings = distributed.settings.model_copy(update={"webhooks": webhooks})
    distributed.stop("ingest")
    with DistributedBackend(settings, writable=True) as one, DistributedBackend(settings) as other:
        one.graph.save_source(Source("forge", "git", "https://git.example/crafts/skills.git"))
        for delivery in (github(github_push(), SECRET), gitlab(gitlab_push(), SECRET)):
            receipt = handle_delivery(one, delivery)
            assert receipt.state == "accepted"
            assert other.journal.get_job(receipt.ids[0]).event.data["source_id"] == "forge"
            for channel in (other, one):
                with pytest.raises(DeliveryError) as caught:
                    handle_delivery(channel, delivery)
                assert caught.value.status == 409
            one.journal.finish_job(receipt.ids[0], {})
        one.graph.delete_source("forge")
    distributed.start("ingest")


# -- when something is missing
def test_queries_wait_for_workers_and_can_be_cancelled(
    client: httpx.Client, distributed: Distributed, agent: str
) -> None:
    address = str(client.base_url.join("/mcp"))

    async def ask(seconds: float) -> str:
        async with over_http(address, agent) as asking:
            with anyio.move_on_after(seconds):
                return text_of(await asking.call_tool("find_skills", {"task": TASK}))
        return ""

    distributed.stop("query")
    assert anyio.run(ask, 0.5) == ""
    with distributed.backend() as remote:
        wait_for(lambda: not remote.journal.count_open_jobs("query"))
    accepted = client.post("/v1/queries", json={"task": TASK}, headers={"Idempotency-Key": "k1"})
    assert accepted.status_code == 202
    place = accepted.headers["location"]
    assert client.delete(place).json()["state"] == "cancelled"

    kept = [client.post("/v1/queries", json={"task": TASK}) for _ in range(OPEN_QUERIES)]
    assert {answer.status_code for answer in kept} == {202}
    with ThreadPoolExecutor(8) as pool:
        over = list(pool.map(lambda _: client.post("/v1/queries", json={"task": TASK}), range(8)))
    for answer in over:
        asked_to_retry(answer)
        assert "workers.open_queries" in answer.json()["detail"]
    assert "workers.open_queries" in anyio.run(ask, 10.0)
    distributed.start("query")
    for answer in kept:
        assert done(client, answer)["state"] == "done"
    assert client.get(place).json()["state"] == "cancelled"


@pytest.mark.parametrize("name", ["elasticsearch", "neo4j", "redis"])
def test_a_server_that_is_away_makes_it_unready(
    client: httpx.Client, servers: ServerControls, name: str
) -> None:
    wait_for(lambda: client.get("/readyz").status_code == 200, 60)
    servers[name].freeze()
    try:
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert f"{name} does not answer" in answer.json()["reasons"]
        assert int(answer.headers["retry-after"]) >= 1
        assert client.get("/healthz").status_code == 200
    finally:
        servers[name].thaw()


def test_nothing_is_accepted_that_redis_does_not_have(
    client: httpx.Client, distributed: Distributed, servers: ServerControls
) -> None:
    wait_for(lambda: client.get("/readyz").status_code == 200, 60)
    key = {"Idempotency-Key": "order-1"}
    before = client.post("/v1/queries", json={"task": TASK}, headers=key).json()
    # It has but its seconds, which the fault may take.
    wait_for(lambda: client.get(f"/v1/queries/{before['id']}").json()["state"] == "done", 60)
    servers.redis.kill()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(client.post, "/v1/queries", json={"task": TASK}) for _ in range(4)]
        asked.append(pool.submit(client.post, "/v1/queries", json={"task": TASK}, headers=key))
        event = new_event(QueryAsked(task=TASK), "elsewhere").model_dump_json()
        asked.append(pool.submit(client.post, "/v1/events", content=event))
        asked.append(pool.submit(client.delete, f"/v1/skills/{BEST}"))
        asked.append(pool.submit(client.get, f"/v1/queries/{before['id']}"))
    for answer in asked:
        asked_to_retry(answer.result())
    servers.redis.start_again()
    wait_for(lambda: client.get("/readyz").status_code == 200, 60)
    with distributed.backend() as remote:
        wait_for(lambda: not remote.journal.count_open_jobs("query"), 60)
        assert remote.journal.count_open_jobs("event") == 0
    assert client.post("/v1/queries", json={"task": TASK}, headers=key).json() == before
    assert client.get(f"/v1/queries/{before['id']}").json()["state"] == "done"
    assert client.get(f"/v1/skills/{BEST}").json()["state"] == "published"


def test_a_bad_time_leaves_lines_that_a_machine_can_read(
    gateway: tuple[httpx.Client, Process],
) -> None:
    lines = gateway[1].text("err").splitlines()
    assert lines.pop(0).startswith("listening on http://127.0.0.1:")
    for line in lines:
        assert isinstance(json.loads(line), dict), line
