"""What a gateway with the library in its process has accepted is kept, whatever happens to it."""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from deploy.stack.ports import free_port
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_skill, write_topics

TASK = "fire stoneware in an electric kiln"
EVIL = "evil\r\nX-Evil: yes\r\n\r\n<b>"
"""Also the name of a folder."""


@pytest.fixture(scope="module")
def skillbus(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    base = tmp_path_factory.mktemp("reliability")
    skillbus = Skillbus(fork_server, base / "home", SKILLBUS_LOG_LEVEL="info")
    root = write_topics(base / "crafts")
    write_skill(root, EVIL, name="evil")
    skillbus("sync", str(root))
    return skillbus


@pytest.fixture(scope="module")
def headers(skillbus: Skillbus) -> dict[str, str]:
    secret = skillbus("tokens", "add", "ops", "--scope", "admin").out.strip()
    return {"Authorization": f"Bearer {secret}"}


class Asking(threading.Thread):
    """Asks with keys of its own until the server is gone; `accepted`: ids by key."""

    def __init__(self, address: str, headers: dict[str, str], name: str) -> None:
        super().__init__(name=name)
        self._client = httpx.Client(base_url=address, headers=headers, timeout=120)
        self.accepted: dict[str, str] = {}

    def run(self) -> None:
        with self._client as client:
            for number in range(100_000):
                key = f"{self.name}-{number}"
                try:
                    answer = ask(client, key)
                except httpx.TransportError:
                    return
                assert answer.status_code == 202
                self.accepted[key] = answer.json()["id"]


def ask(client: httpx.Client, key: str, **headers: str) -> httpx.Response:
    body = {"task": f"{TASK}, {key}", "top": 1}
    return client.post("/v1/queries", json=body, headers={"Idempotency-Key": key, **headers})


def ended(client: httpx.Client, place: str) -> dict[str, Any]:
    def state() -> dict[str, Any] | None:
        answer = client.get(place)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body if body["state"] != "accepted" else None

    found: dict[str, Any] = wait_for(state, 60)
    return found


def test_what_was_accepted_outlives_a_kill(skillbus: Skillbus, headers: dict[str, str]) -> None:
    port = free_port(set())
    address = f"http://127.0.0.1:{port}"
    skillbus.env["SKILLBUS_GATEWAY__REQUESTS_A_MINUTE"] = "1000000"
    # No query expires while a slow machine starts the gateway again.
    skillbus.env["SKILLBUS_WORKERS__QUERY_SECONDS"] = "600"
    skillbus.env["SKILLBUS_GATEWAY__WAIT_SECONDS"] = "60"
    with skillbus.serving("--listen", f"127.0.0.1:{port}") as process:
        threads = [Asking(address, headers, f"client-{n}") for n in range(4)]
        for thread in threads:
            thread.start()
        wait_for(lambda: sum(len(thread.accepted) for thread in threads) > 3 * len(threads))
        time.sleep(random.random() / 10)
        process.kill()
        for thread in threads:
            thread.join()
    accepted = {key: one for thread in threads for key, one in thread.accepted.items()}
    assert len(accepted) > len(threads)

    with (
        skillbus.serving("--listen", f"127.0.0.1:{port}"),
        httpx.Client(base_url=address, headers=headers, timeout=120) as client,
    ):
        for key, query_id in accepted.items():
            body = ended(client, f"/v1/queries/{query_id}")
            assert body["state"] == "done", body
            again = ask(client, key, Prefer="wait=60")
            assert (again.status_code, again.json()) == (200, body)
        # one whose answer the kill had cut off, and an unknown one, are taken or known
        for thread in threads:
            lost = ask(client, f"{thread.name}-{len(thread.accepted)}", Prefer="wait=60")
            assert lost.json()["state"] == "done"
        assert client.get("/v1/status").json()["open_queries"] == 0


def test_an_upload_outlives_a_kill(skillbus: Skillbus) -> None:
    text = "---\nname: sundial\ndescription: Set up a sundial.\n---\n# Sundial\n\nPoint north.\n"
    with skillbus.serving() as process, skillbus.client() as client:
        accepted = client.post(
            "/v1/skills?source=values&path=sundial",
            content=text,
            headers={"Content-Type": "text/markdown"},
        )
        assert accepted.status_code == 202
        process.kill()
    with skillbus.serving(), skillbus.client() as client:
        assert ended(client, accepted.headers["location"])["state"] == "done"
        wait_for(lambda: client.get("/v1/skills/values:sundial").json()["state"] == "published")


def test_no_name_gets_into_headers_or_lines_of_the_log(skillbus: Skillbus) -> None:
    with skillbus.serving() as process, skillbus.client() as client:
        pages = [client.get("/v1/skills", params={"limit": 1})]
        while pages[-1].json()["next"]:
            pages.append(client.get(pages[-1].json()["next"]))
        named = [skill["skill_id"] for page in pages for skill in page.json()["skills"]]
        assert any("X-Evil" in skill_id for skill_id in named)
        event = {
            "specversion": "1.0",
            "id": EVIL,
            "source": f"ci/{EVIL}",
            "type": "skillbus.source.changed.v1",
            "data": {"source_id": EVIL},
        }
        answers = [
            *pages,
            client.post("/v1/events", json=event),
            client.post("/v1/sources", json={"source_id": EVIL, "root": "/nowhere"}),
            client.post("/v1/queries", json={"task": EVIL}, headers={"Prefer": "wait=20"}),
            client.post(
                "/v1/skills",
                params={"source": "values", "path": EVIL},
                content="# x",
                headers={"Content-Type": "text/markdown"},
            ),
            *(client.get(f"/v1/skills/{quote(one)}") for one in named),
        ]
        for answer in answers:
            assert "x-evil" not in answer.headers
            assert not any("\n" in value or "\r" in value for value in answer.headers.values())
    for line in process.text("err").splitlines():
        if not line.startswith("serving "):
            assert isinstance(json.loads(line), dict), line
