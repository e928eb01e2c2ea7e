"""Requests of the HTTP API with tokens that clients send seldom, or all at once."""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Timer
from typing import Any
from unittest import mock

import httpx
import pytest
from fastapi.testclient import TestClient

from config.errors import NotFoundError, SkillbusError, TransientError
from graph.records import SkillState
from skills.events import QueryAsked, SourceChanged, new_event
from skills.outcomes.model import AnsweredQuery, Outcome, OutcomeKind, Reporter
from tasks.journal.protocol import Job
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from tests.support.servers.collector import Collector
from workers.backend.embedded import EmbeddedBackend
from workers.http.access import AccessMiddleware, AccessRules
from workers.http.app import create_api, create_gateway
from workers.http.authentication import LOCAL_USER
from workers.http.route_services import RouteServices
from workers.http.routes.library.search import LibraryQuery
from workers.http.tokens import TokenScope, TokenStore
from workers.library.public_skills import PublicSkills
from workers.queue.protocol import Message
from workers.queue.recorder import MessageRecorder
from workers.tracing.start import tracing

FOLDER_LIKE_A_REVISION = "kiln-firing/revisions/007"
STREAMS = 2
DIGITS = "9" * 5_000
"""More than Python converts to a number."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("skills") / "crafts"
    rows = write_skill(root, "bee-keeping") / "rows.json.gz"
    rows.write_bytes(gzip.compress(b"{}"))
    for name in ("bread-baking", "star-charts"):
        write_skill(root, name, license="MIT")
    for name in ("kiln-firing", "tide-tables"):
        write_skill(root, name)
    write_skill(root, "glaze-wheel", "Zentriere Ton auf der Töpferscheibe", license="MIT")
    write_skill(root, FOLDER_LIKE_A_REVISION, "A skill whose folder is named as a revision")
    return root


@pytest.fixture(scope="module")
def backend(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBackend]:
    home = tmp_path_factory.mktemp("http") / "home"
    gateway = {
        "burst": 1_000,
        "streams": STREAMS,
        "delivery_burst": 3,
        "deliveries_a_minute": 1,
        "roots": [root.parent],
    }
    settings: dict[str, Any] = {
        "gateway": gateway,
        "policy": {"public": ["crafts"]},
        "submissions": {"roots": [root.parent]},
        # The reconciler would carry out queries that are to stay open.
        "workers": {"reconcile_seconds": 3_600},
    }
    with tiny_backend(home, **settings) as backend:
        backend.accept(new_event(SourceChanged(source_id="crafts", root=str(root)), "tests"))
        settle(backend)
        yield backend


@pytest.fixture(scope="module")
def tokens(backend: EmbeddedBackend) -> TokenStore:
    return TokenStore(backend.settings.home / "tokens.json")


@pytest.fixture(scope="module")
def gateway(backend: EmbeddedBackend, tokens: TokenStore) -> Any:
    return create_gateway(backend, AccessRules(tokens))


@pytest.fixture(scope="module")
def headers(tokens: TokenStore) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens.add('writer', TokenScope.WRITE)}"}


@pytest.fixture(scope="module")
def client(gateway: Any, headers: dict[str, str]) -> TestClient:
    return TestClient(gateway, "http://skillbus", headers=headers)


@pytest.fixture(scope="module")
def local(backend: EmbeddedBackend) -> TestClient:
    """The user of this machine, on the socket."""
    return TestClient(create_gateway(backend), "http://skillbus")


def test_the_document_of_the_socket_has_the_route_of_the_commands(local: TestClient) -> None:
    answer = local.get("/v1/openapi.json")
    assert answer.status_code == 200, answer.text
    assert set(answer.json()["paths"]["/v1/answers"]) == {"post"}
    assert local.get("/v1/answers").headers["Allow"] == "POST"


def test_pages_of_skills_without_a_licence_keep_the_filter(client: TestClient) -> None:
    found, path = [], "/v1/library?licence=&limit=2"
    while path:
        page = client.get(path).json()
        found += [one["skill_id"] for one in page["skills"]]
        path = page["next"]
    names = ("bee-keeping", "kiln-firing", FOLDER_LIKE_A_REVISION, "tide-tables")
    assert found == [f"crafts:{name}" for name in names]


@pytest.mark.parametrize("typed", ["Töpf", "To\u0308pf"])
def test_an_unfinished_word_may_have_any_letters(client: TestClient, typed: str) -> None:
    found = client.get("/v1/library", params={"q": typed}).json()["skills"]
    assert [one["name"] for one in found] == ["glaze-wheel"]


def test_a_preference_may_be_in_any_of_several_headers(client: TestClient) -> None:
    several = [("Prefer", "respond-async"), ("Prefer", "wait=20")]
    answer = client.post("/v1/queries", json={"task": "fire a kiln"}, headers=several)
    assert (answer.status_code, answer.headers["preference-applied"]) == (200, "wait=20")


def test_a_long_wait_is_shortened(backend: EmbeddedBackend, client: TestClient) -> None:
    granted = f"wait={backend.settings.gateway.wait_seconds:g}"
    for seconds in ("1000000", DIGITS):
        headers = {"Prefer": f"wait={seconds}"}
        answer = client.post("/v1/queries", json={"task": "fire a kiln"}, headers=headers)
        assert (answer.status_code, answer.headers["preference-applied"]) == (200, granted)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"task": "\xff"}', "it is not UTF-8"),
        (b"[" * 100_000, "it is nested too deeply"),
        (f'{{"budget": {DIGITS}}}'.encode(), "a number has too many digits"),
    ],
)
def test_the_answer_says_why_a_body_cannot_be_read(
    client: TestClient, body: bytes, reason: str
) -> None:
    kind = {"Content-Type": "application/json"}
    problem = client.post("/v1/queries", content=body, headers=kind).json()
    assert (problem["status"], problem["detail"]) == (422, f"the body is not valid JSON: {reason}")


def test_the_answer_says_what_is_wrong_with_path_or_method(client: TestClient) -> None:
    unknown, patched = client.get("/v1/queries/"), client.patch("/v1/queries")
    assert (unknown.status_code, "/v1/openapi.json" in unknown.json()["detail"]) == (404, True)
    assert patched.headers["allow"] == "GET, HEAD, POST"
    assert patched.json()["detail"] == "this path takes only GET, HEAD, POST"


def test_groups_are_returned_as_they_are_stored(local: TestClient) -> None:
    groups = {"groups": ["hr", "finance", "hr"]}
    stored = local.put("/v1/sources/annex/groups", json=groups)
    assert stored.json() == {"groups": ["finance", "hr"]}


def test_a_skill_in_a_folder_that_looks_like_a_revision_is_shown(client: TestClient) -> None:
    skill_id = f"crafts:{FOLDER_LIKE_A_REVISION}"
    assert client.get(f"/v1/skills/{skill_id}").json()["skill_id"] == skill_id
    seq = client.get("/v1/skills/crafts:kiln-firing").json()["seq"]
    assert client.get(f"/v1/skills/crafts:kiln-firing/revisions/{seq}").json()["seq"] == seq


@pytest.mark.parametrize("seq", [DIGITS, str(2**63), "1"])
def test_no_revision_has_such_a_number(client: TestClient, seq: str) -> None:
    assert client.get(f"/v1/skills/crafts:none/revisions/{seq}").status_code == 404


def test_a_cursor_with_such_a_number_begins_at_the_start(client: TestClient) -> None:
    query = LibraryQuery(q="none", state=SkillState.PUBLISHED, limit=10)
    found = client.get(query.make_next_path("/v1/library", DIGITS))
    assert (found.status_code, found.json()["skills"]) == (200, [])


def test_a_compressed_file_has_not_the_type_of_its_content(client: TestClient) -> None:
    rows = client.get("/.well-known/agent-skills/bee-keeping/rows.json.gz")
    assert rows.headers["content-type"] == "application/octet-stream"
    assert gzip.decompress(rows.content) == b"{}"


def test_no_part_of_compressed_logs_is_dropped(client: TestClient) -> None:
    kind = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    body = gzip.compress(b'{"resourceLogs": []}')
    assert client.post("/v1/otlp/logs", content=body, headers=kind).status_code == 200
    refused = client.post("/v1/otlp/logs", content=body + body, headers=kind)
    assert (refused.status_code, "one gzip stream" in refused.text) == (400, True)


def test_a_token_that_cannot_be_stored_is_not_the_fault_of_its_caller(
    client: TestClient, tokens: TokenStore
) -> None:
    headers = {"Authorization": f"Bearer {tokens.add('root', TokenScope.ADMIN)}"}
    with mock.patch.object(Path, "replace", side_effect=OSError(28, "No space left on device")):
        added = client.post("/v1/tokens", json={"name": "next"}, headers=headers)
        revoked = client.delete("/v1/tokens/root", headers=headers)
    for answer in (added, revoked):
        assert (answer.status_code, "tokens.json" in answer.text) == (503, False)
    assert [one.name for one in tokens.all()] == ["writer", "root"]


@pytest.mark.parametrize(
    "path",
    [
        *("/healthz", "/v1/skills", "/v1/skills/crafts:kiln-firing", "/v1/skills/none"),
        *("/v1/openapi.json", "/.well-known/agent-skills/index.json", "/console/library"),
        "/v1/otlp/logs",
    ],
)
def test_head_has_the_headers_of_get(client: TestClient, path: str) -> None:
    plain = {"Accept-Encoding": "identity"}  # compressed CSRF tokens have different lengths
    got, head = client.get(path, headers=plain), client.head(path, headers=plain)
    assert (head.status_code, head.content) == (got.status_code, b"")
    for headers in (got.headers, head.headers):
        for name in ("x-request-id", "set-cookie"):
            headers.pop(name, None)
    assert head.headers == got.headers


def test_head_of_a_stream_ends(backend: EmbeddedBackend, client: TestClient) -> None:
    query_id = add_open_query(backend)
    head = client.head(f"/v1/queries/{query_id}/events")
    assert (head.status_code, head.headers["content-type"]) == (
        200,
        "text/event-stream; charset=utf-8",
    )
    backend.journal.cancel_job(query_id)


@pytest.mark.parametrize("event_id", ["\N{SNOWMAN}", "a?b#c", "a b", "a/b"])
def test_an_event_of_this_machine_is_found_by_its_location(
    local: TestClient, event_id: str
) -> None:
    event = new_event(SourceChanged(source_id="crafts"), "skillbus/tests")
    body = event.model_copy(update={"id": event_id}).model_dump_json().encode()
    accepted = local.post("/v1/events", content=body)
    assert accepted.status_code == 202
    assert local.get(accepted.headers["location"]).json()["id"] == event_id


def test_a_task_on_the_socket_that_is_not_text_is_refused(local: TestClient) -> None:
    kind = {"Content-Type": "application/json"}
    refused = local.post("/v1/answers", content=b'{"task": "\\ud800"}', headers=kind)
    assert refused.status_code == 422
    assert "a lone surrogate" in refused.json()["detail"]


def test_deliveries_to_unknown_hosts_share_a_limit(client: TestClient) -> None:
    answers = [client.post(f"/v1/webhooks/{place}-host").status_code for place in range(5)]
    assert answers == [404, 404, 404, 429, 429]
    assert client.post("/v1/webhooks/github").status_code == 404  # no secret is set


def test_a_method_of_the_caller_does_not_name_a_span(client: TestClient) -> None:
    with Collector() as collector, tracing(collector.settings()):
        assert client.request("BREW", "/v1/queries").status_code == 405
    assert [one.name for one in collector.spans] == ["_OTHER /v1/queries"]


def test_the_root_that_was_checked_is_recorded(
    backend: EmbeddedBackend, root: Path, client: TestClient
) -> None:
    link = root.with_name("link")
    link.symlink_to(root.with_name("other"))
    write_skill(root.with_name("other"), "garden-frost")

    def event(source_id: str) -> bytes:
        changed = SourceChanged(source_id=source_id, root=str(link))
        return (
            new_event(changed, "tests")
            .model_copy(update={"id": source_id})
            .model_dump_json()
            .encode()
        )

    sent = client.post("/v1/events", content=event("sent"))
    assert sent.status_code == 202
    assert MessageRecorder(backend).record(Message(event("queued"))) is None
    settle(backend)
    ended = backend.journal.list_ended_jobs("event", 0).job_ids
    changes = [backend.journal.get_job(one).event.data for one in ended]
    roots = {one["source_id"]: one["root"] for one in changes}
    assert roots["sent"] == roots["queued"] == str(root.with_name("other"))


def test_a_refused_source_keeps_its_groups(
    backend: EmbeddedBackend, root: Path, local: TestClient
) -> None:
    (folder := root.with_name("vault")).mkdir()
    key = {"Idempotency-Key": "add-vault"}

    def add(source_id: str, *groups: str) -> int:
        body = {"source_id": source_id, "root": str(folder), "groups": groups}
        return local.post("/v1/sources", json=body, headers=key).status_code

    assert add("vault", "finance") == 202
    backend.set_source_groups("annex", ["finance"])
    assert add("annex") == 422
    assert backend.graph.read_access().groups["annex"] == ("finance",)
    settle(backend)


def test_outcomes_that_others_reported_name_no_hidden_skill(
    backend: EmbeddedBackend, client: TestClient
) -> None:
    backend.set_source_groups("annex", ["finance"])
    store, now = backend.outcome_store(), time.time()
    store.add_answers([AnsweredQuery("asked", "writer", "", "x", now, hit=True)])
    reported = {"annex:a": "", "crafts:star-charts": "annex:b", "": ""}
    store.add_outcomes(
        [
            Outcome(f"{n}", "asked", one, OutcomeKind.USED, Reporter.PERSON, "", now, other=other)
            for n, (one, other) in enumerate(reported.items())
        ]
    )
    answer = client.get("/v1/queries/asked/outcomes")
    assert "annex" not in answer.text
    assert [one["skill_id"] for one in answer.json()["outcomes"]] == ["crafts:star-charts", ""]
    store.forget_outcomes("asked")


def add_open_query(backend: EmbeddedBackend) -> str:
    """Record a query of the client that no task answers; return its id."""
    query = new_event(QueryAsked(task="x"), "skillbus/gateway")
    owned = query.model_copy(update={"owner": "writer"})
    backend.journal.add_job(owned, "query", ttl_seconds=600)
    return query.id


@pytest.mark.parametrize(
    ("error", "end"), [(TransientError("busy"), "cancelled"), (NotFoundError("deleted"), "")]
)
def test_a_stream_has_its_end_though_the_journal_fails_for_a_moment(
    backend: EmbeddedBackend,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    error: SkillbusError,
    end: str,
) -> None:
    query_id, read, failed = add_open_query(backend), backend.journal.get_jobs, 0

    def fail_once(ids: Sequence[str]) -> dict[str, Job]:
        nonlocal failed
        jobs = read(ids)
        if any(job.state != "accepted" for job in jobs.values()) and not failed:
            failed += 1
            raise error
        return jobs

    monkeypatch.setattr(backend.journal, "get_jobs", fail_once)
    Timer(0.5, backend.journal.cancel_job, (query_id,)).start()
    text = client.get(f"/v1/queries/{query_id}/events").text
    ends = re.findall("^event: ([a-z]+)", text, re.MULTILINE)
    assert (failed, ends) == (1, [end] if end else [])


def test_streams_that_are_opened_at_once_keep_their_limit(
    backend: EmbeddedBackend, gateway: Any, headers: dict[str, str]
) -> None:
    query_id = add_open_query(backend)

    async def open_streams() -> list[int]:
        transport = httpx.ASGITransport(gateway)
        client = httpx.AsyncClient(transport=transport, base_url="http://skillbus", headers=headers)

        async def open_one() -> int:
            answer = await client.get(f"/v1/queries/{query_id}/events")
            return answer.status_code

        streams = [asyncio.create_task(open_one()) for _ in range(4 * STREAMS)]
        done, open_ones = await asyncio.wait(streams, timeout=2, return_when=asyncio.ALL_COMPLETED)
        assert len(open_ones) == STREAMS
        backend.journal.cancel_job(query_id)
        ended = [await one for one in open_ones]
        assert ended == [200] * STREAMS
        assert await open_one() == 200
        return [one.result() for one in done]

    assert asyncio.run(open_streams()) == [503] * (3 * STREAMS)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/events", "application/json"),
        ("/v1/otlp/logs", "application/json"),
        ("/v1/queries", "application/json"),
        ("/v1/skills?source=s&path=x", "text/markdown"),
        ("/console/theme", "application/x-www-form-urlencoded"),
    ],
)
def test_a_client_that_leaves_during_its_body_causes_no_error(
    gateway: Any, headers: dict[str, str], path: str, kind: str
) -> None:
    received = iter([{"type": "http.request", "body": b"{", "more_body": True}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(received, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    named = {**headers, "Host": "skillbus", "Content-Type": kind}
    raw = [(name.lower().encode(), value.encode()) for name, value in named.items()]
    target, _, query = path.partition("?")
    scope = {"type": "http", "method": "POST", "path": target, "query_string": query.encode()}
    scope |= {"headers": raw, "http_version": "1.1", "scheme": "http", "server": ("skillbus", 80)}
    asyncio.run(gateway(scope, receive, send))
    assert sent[0]["status"] == 400


async def ask_meanwhile(app: Any, path: str, release: Callable[[], object]) -> set[int]:
    """The statuses of many requests that wait, after another request was answered meanwhile."""
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://skillbus")
    waiting = [asyncio.create_task(client.get(path)) for _ in range(100)]
    try:
        await asyncio.sleep(0.5)
        answer = await asyncio.wait_for(client.get("/v1/skills"), 5)
        assert answer.status_code == 200
    finally:
        release()
    return {(await one).status_code for one in waiting}


def test_reports_that_wait_leave_threads_to_other_requests(backend: EmbeddedBackend) -> None:
    services = RouteServices.create(backend, None)
    api = create_api(backend, AccessRules(), services=services)
    app = AccessMiddleware(api, AccessRules(), backend.settings.gateway)
    with ExitStack() as stack:
        stack.enter_context(services.usage.open(LOCAL_USER))
        assert asyncio.run(ask_meanwhile(app, "/v1/usage", stack.close)) == {200, 503}


def test_archives_that_wait_leave_threads_to_other_requests(
    local: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/.well-known/agent-skills/bee-keeping.zip"
    assert local.get(path).status_code == 200
    released, make_archive = Event(), PublicSkills._make_archive

    def make_slowly(*arguments: Any) -> bytes:
        assert released.wait(60)
        return make_archive(*arguments)

    monkeypatch.setattr(PublicSkills, "_make_archive", make_slowly)
    assert asyncio.run(ask_meanwhile(local.app, path, released.set)) == {200, 503}
