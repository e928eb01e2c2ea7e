"""`POST /v1/webhooks/{host}` over HTTP on loopback: what hosts send, and what attackers do."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.errors import MisconfiguredError, UsageError
from config.settings import Settings
from graph.records import Source
from skills.events import GitPush, SourceChanged, get_trace_context
from tests.support.program.program import wait_for
from tests.support.program.secrecy import made_up
from tests.support.samples.tiny import TinyEncoder
from tests.support.servers.collector import PARENT, TRACE, TRACEPARENT, Collector
from tests.support.servers.webhooks import (
    NONE,
    OLD,
    SECRET,
    SENDERS,
    SIGNING,
    gitea,
    gitea_push,
    github,
    github_push,
    gitlab,
    gitlab_push,
)
from workers.backend.embedded import EmbeddedBackend
from workers.http.access import LOOPBACK_HOSTS, AccessRules
from workers.http.app import create_gateway
from workers.http.routes import webhooks
from workers.http.routes.webhooks import check_webhooks
from workers.http.tokens import TokenStore
from workers.tracing.start import tracing
from workers.webhooks.delivery import Delivery

ROOT = Path(__file__).resolve().parents[3]
TEAM_SECRET = made_up("of the team alone")
ADDRESS = "https://git.example/crafts/skills.git"
LIMIT = 200_000
_TLS = ssl.create_default_context()  # made once: each client would take a while to make its own
SECONDS = 2.0


@dataclass
class Listening:
    """A gateway that listens, its channel, and the folder of its secrets."""

    backend: EmbeddedBackend
    port: int
    secrets: Path

    def send(self, delivery: Delivery, host: str = "") -> httpx.Response:
        """POST a delivery."""
        with httpx.Client(timeout=60, verify=_TLS) as client:
            return client.post(
                f"http://127.0.0.1:{self.port}/v1/webhooks/{host or delivery.host}",
                content=delivery.body,
                headers=[
                    (name.encode(), value.encode("latin-1"))
                    for name, value in delivery.headers.items()
                ],
            )

    def events(self) -> int:
        """How many events wait in the journal."""
        return self.backend.journal.count_open_jobs("event")


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    base = tmp_path_factory.mktemp("webhooks")
    for name, secret in {"one": SECRET, "signing": SIGNING, "team": TEAM_SECRET}.items():
        (base / name).write_text(f"{secret}\n")
    webhooks = {
        "github": (base / "one",),
        "gitlab": (base / "one", base / "signing"),
        "gitea": (base / "one",),
        "sources": {"team": (base / "team",)},
        "body_bytes": LIMIT,
        "body_seconds": SECONDS,
        "open_bodies": 8,
    }
    with opened(base / "home", webhooks) as backend, served(backend) as port:
        put_sources(backend, crafts=ADDRESS, team="git@git.example:team/skills.git")
        yield Listening(backend, port, base)


@contextmanager
def opened(
    home: Path, webhooks: dict[str, Any], gateway: dict[str, Any] | None = None
) -> Iterator[EmbeddedBackend]:
    """The stores of a home, without workers: what is accepted stays open."""
    chosen = Settings(webhooks=webhooks, gateway=gateway or {"delivery_burst": 10_000})
    chosen = chosen.model_copy(update={"home": home})
    backend = EmbeddedBackend(chosen, writable=True, encoder=TinyEncoder())
    try:
        yield backend
    finally:
        backend.stop()


@contextmanager
def served(backend: EmbeddedBackend) -> Iterator[int]:
    """The gateway on a port of loopback, where everything else asks for a token."""
    tokens = TokenStore(backend.settings.home / "tokens.json")
    gateway = create_gateway(backend, AccessRules(tokens, hosts=LOOPBACK_HOSTS))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(gateway, log_level="error", access_log=False, lifespan="off")
        )
        thread = threading.Thread(target=lambda: asyncio.run(server._serve([bound])))
        thread.start()
        try:
            wait_for(lambda: server.started)
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(120)


def put_sources(backend: EmbeddedBackend, **addresses: str) -> None:
    for source_id, address in addresses.items():
        backend.graph.save_source(Source(source_id, "git", address))


def problem(answer: httpx.Response, status: int) -> str:
    """The detail of a problem with this status."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    return str(answer.json()["detail"])


SIGNATURES = ("x-hub-signature-256", "x-gitea-signature", "webhook-signature", "x-gitlab-token")
_numbers = iter(range(1, 1 << 30))


def push(name: str, **values: Any) -> Delivery:
    """A push to a commit of its own."""
    send, content, secret = SENDERS[name]
    return send(content(**({"after": f"{next(_numbers):040x}"} | values)), secret)


# -- what hosts send


@pytest.mark.parametrize("name", list(SENDERS))
def test_a_push_becomes_one_event_for_its_source(listening: Listening, name: str) -> None:
    before = listening.events()
    after = f"{next(_numbers):040x}"
    answer = listening.send(push(name, after=after))
    assert answer.status_code == 202, answer.text
    (event_id,) = answer.json()["ids"]
    assert answer.headers["location"] == f"/v1/events/{event_id}"
    job = listening.backend.journal.get_job(event_id)
    assert job.state == "accepted"
    content = job.event.parse_data()
    assert isinstance(content, SourceChanged)
    assert content.source_id == "crafts"
    assert content.pushed == GitPush(before=OLD, after=after)
    assert listening.events() == before + 1


def test_the_event_of_a_push_continues_the_trace_of_its_delivery(listening: Listening) -> None:
    with Collector() as collector, tracing(collector.settings()):
        delivery = push("github")
        delivery = replace(delivery, headers={**delivery.headers, "traceparent": TRACEPARENT})
        (event_id,) = listening.send(delivery).json()["ids"]
        # While spans are made: that of the request ends after its response was sent.
        request = collector.find("POST /v1/webhooks/{host}", TRACE)
        recorded = collector.find("record skillbus.source.changed.v1", TRACE)
    assert (request.parent_id, recorded.parent_id) == (PARENT, request.span_id)
    event = listening.backend.journal.get_job(event_id).event
    assert get_trace_context(event) == recorded.context


def test_forgejo_and_forms(listening: Listening) -> None:
    for form in (True, False):
        content = gitea_push(after=f"{next(_numbers):040x}")
        forgejo = gitea(content, SECRET, form=form, brand="forgejo")
        assert listening.send(forgejo, "forgejo").status_code == 202
    content = github_push(after=f"{next(_numbers):040x}")
    assert listening.send(github(content, SECRET, form=True)).status_code == 202


def test_a_branch_that_is_deleted_is_an_event_too(listening: Listening) -> None:
    for name in SENDERS:
        gone = push(name, after=NONE, before=f"{next(_numbers):040x}", deleted=True)
        answer = listening.send(gone)
        assert answer.status_code == 202, name
        (event_id,) = answer.json()["ids"]
        assert "pushed" not in listening.backend.journal.get_job(event_id).event.data


def test_another_branch_or_a_tag_is_no_event(listening: Listening) -> None:
    before = listening.events()
    for name in SENDERS:
        for ref in ("refs/heads/draft", "refs/tags/main", "refs/heads/draft\ud800"):
            answer = listening.send(push(name, ref=ref))
            assert answer.status_code == 200, answer.text
            assert answer.json()["state"] == "ignored"
            assert "no source follows" in answer.json()["reason"]
    assert listening.events() == before


def test_a_ping_is_answered(listening: Listening) -> None:
    known = github({"zen": "…", "repository": {"clone_url": ADDRESS}}, SECRET, event="ping")
    answer = listening.send(known)
    assert (answer.status_code, answer.json()["state"]) == (200, "pong")
    assert answer.json()["reason"] == "followed by crafts"
    unknown = github({"zen": "…"}, SECRET, event="ping")
    assert "no git source" in listening.send(unknown).json()["reason"]


def test_other_events_are_ignored_with_a_reason(listening: Listening) -> None:
    for delivery in (
        github(github_push(), SECRET, event="issues"),
        gitlab(gitlab_push(), SECRET, event="Tag Push Hook"),
        gitea({}, SECRET, event="release"),
    ):
        answer = listening.send(delivery)
        assert (answer.status_code, answer.json()["state"]) == (200, "ignored")
        assert "only pushes" in answer.json()["reason"]


def test_a_repository_that_no_source_follows(listening: Listening) -> None:
    before = listening.events()
    other = "https://git.example/crafts/others.git"
    for name in SENDERS:
        send, content, secret = SENDERS[name]
        assert "no git source" in problem(listening.send(send(content(other), secret)), 403)
    assert listening.events() == before


def test_the_secret_of_a_source_counts_for_it_alone(listening: Listening) -> None:
    team = github_push("https://git.example/team/skills.git", after=f"{next(_numbers):040x}")
    assert listening.send(github(team, TEAM_SECRET)).status_code == 202
    problem(listening.send(github(github_push(), TEAM_SECRET)), 403)


def test_the_example_of_the_docs(listening: Listening) -> None:
    page = (ROOT / "docs/how-to/webhooks.md").read_text(encoding="utf-8")
    shown = next(part for part in page.split("```") if "openssl dgst" in part)
    lines = shown.partition("HTTP/")[0].splitlines()[1:]
    script = "\n".join(line.removeprefix("$ ") for line in lines)
    script = script.replace("~/.config/skillbus/github-secret", str(listening.secrets / "one"))
    script = script.replace("127.0.0.1:8765", f"127.0.0.1:{listening.port}")
    run = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=120)
    assert run.stdout.startswith("HTTP/1.1 202 Accepted"), (run.stdout, run.stderr)
    assert '"state":"accepted"' in run.stdout


# -- what attackers send


@pytest.mark.parametrize("name", list(SENDERS))
def test_a_delivery_that_comes_again_is_refused(listening: Listening, name: str) -> None:
    delivery = push(name)
    first = listening.send(delivery)
    assert first.status_code == 202
    before = listening.events()
    assert first.json()["ids"][0] in problem(listening.send(delivery), 409)
    if name in ("github", "gitea"):  # their ids are not signed
        id_header = "x-github-delivery" if name == "github" else "x-gitea-delivery"
        renamed = replace(delivery, headers={**delivery.headers, id_header: "another"})
        problem(listening.send(renamed), 409)
    assert listening.events() == before


def test_a_delivery_that_comes_many_times_at_once_is_taken_once(listening: Listening) -> None:
    delivery = push("github")
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: listening.send(delivery).status_code, range(6)))
    assert sorted(answers) == [202, 409, 409, 409, 409, 409]


def test_replays_are_refused_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "one").write_text(SECRET)
    delivery = push("github")
    for status in (202, 409):
        with opened(tmp_path / "home", {"github": (tmp_path / "one",)}) as backend:
            put_sources(backend, crafts=ADDRESS)
            with served(backend) as port:
                answer = Listening(backend, port, tmp_path).send(delivery)
                assert answer.status_code == status, answer.text


def test_what_was_sent_long_ago_or_in_the_future_is_refused(listening: Listening) -> None:
    now = int(time.time())
    for when in (now - 8 * 86_400, now + 2 * 86_400):
        old = push("github", repository={"pushed_at": when})
        assert "sent" in problem(listening.send(old), 401)
    for when in (now - 400, now + 400):
        old = gitlab(gitlab_push(), SIGNING, webhook_timestamp=str(when))
        assert "sent" in problem(listening.send(old), 401)


def test_a_body_that_is_too_large_is_refused_before_it_is_read(listening: Listening) -> None:
    head = (
        f"POST /v1/webhooks/github HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {LIMIT + 1}\r\n\r\n"
    )
    assert raw(listening.port, head.encode()).startswith(b"HTTP/1.1 413")
    chunk = b"8000\r\n" + b"a" * 0x8000 + b"\r\n"
    chunked = head.replace(f"Content-Length: {LIMIT + 1}", "Transfer-Encoding: chunked")
    endless = chunked.encode() + chunk * (LIMIT // 0x8000 + 1)
    assert raw(listening.port, endless).startswith(b"HTTP/1.1 413")


def test_slow_clients_do_not_keep_others_out(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All come from one network, which may hold half of the slots: two rounds of slow clients.
    monkeypatch.setattr(webhooks, "_QUEUE_TIMEOUT_SECONDS", 15 * SECONDS)
    head = b"POST /v1/webhooks/github HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nabc"
    with ThreadPoolExecutor(8) as pool:
        slow = [pool.submit(raw, listening.port, head) for _ in range(8)]
        answers = [listening.send(push("github"))]
        while answers[-1].status_code == 202 and not all(one.done() for one in slow):
            answers.append(listening.send(push("github")))
        assert {one.status_code for one in answers} == {202}
        assert all(one.result().startswith(b"HTTP/1.1 408") for one in slow)
    assert listening.send(push("github")).status_code == 202


def test_a_burst_of_pushes_is_taken_in_and_what_is_forged_is_counted(tmp_path: Path) -> None:
    (tmp_path / "one").write_text(f"{SECRET}\n")
    few = {"deliveries_a_minute": 1, "delivery_burst": 20, "burst": 1}
    with opened(tmp_path / "home", {"github": (tmp_path / "one",)}, few) as backend:
        put_sources(backend, crafts=ADDRESS)
        with served(backend) as port, ThreadPoolExecutor(16) as pool:
            listening = Listening(backend, port, tmp_path)
            pushes = [push("github") for _ in range(60)]
            assert {one.status_code for one in pool.map(listening.send, pushes)} == {202}
            forged = replace(push("github"), body=b"{}")
            answers = [listening.send(forged)]
            while answers[-1].status_code == 401 and len(answers) < 100:
                answers.append(listening.send(forged))
            assert len(answers) > 20  # and one more for each minute that it took
            assert "deliveries_a_minute" in problem(answers[-1], 429)
            assert 0 < int(answers[-1].headers["retry-after"]) <= 61
            assert listening.send(push("github")).status_code == 429
            assert listening.send(push("github"), "gitea").status_code != 429


@pytest.mark.parametrize(
    ("status", "host", "changes"),
    [
        (404, "bitbucket", {}),
        (404, "..%2f..", {}),
        (405, "github", None),
        (415, "github", {"content-encoding": "gzip"}),
        (415, "github", {"content-type": "text/html"}),
        (400, "github", {"x-github-event": ""}),
    ],
)
def test_requests_of_another_shape(
    listening: Listening, status: int, host: str, changes: dict[str, str] | None
) -> None:
    if changes is None:
        answer = httpx.get(f"http://127.0.0.1:{listening.port}/v1/webhooks/{host}", timeout=60)
    else:
        delivery = push("github")
        answer = listening.send(replace(delivery, headers={**delivery.headers, **changes}), host)
    assert answer.status_code == status, answer.text


tokens = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"))


@given(
    st.sampled_from(["github", "gitlab", "gitea", "forgejo", "x", "%00", "a b"]),
    st.dictionaries(
        st.sampled_from(
            [*SIGNATURES, "content-type", "content-encoding", "x-github-event", "webhook-id"]
        ),
        tokens,
    ),
    st.binary(max_size=300) | st.text(max_size=100).map(lambda text: json.dumps(text).encode()),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_request_without_the_secret_is_accepted_or_an_error(
    listening: Listening, host: str, headers: dict[str, str], body: bytes
) -> None:
    before = listening.events()
    delivery = Delivery("github", {name: text.strip() for name, text in headers.items()}, body)
    answer = listening.send(delivery, host)
    assert 400 <= answer.status_code < 500, answer.text
    assert listening.events() == before


# -- secrets


def test_a_secret_can_be_changed_without_a_restart(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("first")
    new.write_text("second")
    with (
        opened(tmp_path / "home", {"github": (old, new)}) as backend,
        served(backend) as port,
    ):
        put_sources(backend, crafts=ADDRESS)
        here = Listening(backend, port, tmp_path)

        def status(secret: str) -> int:
            content = github_push(after=f"{next(_numbers):040x}")
            return here.send(github(content, secret)).status_code

        assert [status(one) for one in ("first", "second", "third")] == [202, 202, 401]
        old.write_text("third")
        assert [status(one) for one in ("first", "second", "third")] == [401, 202, 202]
        old.unlink()
        answer = here.send(github(github_push(), "second"))
        assert "secret" in problem(answer, 503)
        assert str(tmp_path) not in answer.text


def test_a_host_without_a_secret_is_not_there(tmp_path: Path) -> None:
    with opened(tmp_path / "home", {}) as backend, served(backend) as port:
        put_sources(backend, crafts=ADDRESS)
        here = Listening(backend, port, tmp_path)
        assert "[webhooks]" in problem(here.send(push("github")), 404)


def test_settings_that_cannot_work_are_said_at_the_start(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "home", {"gitea": (tmp_path / "none",)}) as backend,
        pytest.raises(MisconfiguredError, match=r"webhooks\.gitea"),
    ):
        check_webhooks(backend.settings.webhooks)
    with (
        opened(tmp_path / "home", {"repositories": ("crafts",)}) as backend,
        pytest.raises(UsageError, match=r"webhooks\.repositories: 'crafts'"),
    ):
        check_webhooks(backend.settings.webhooks)


def raw(port: int, request: bytes) -> bytes:
    """What is answered to bytes that need not be a whole request, until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        client.sendall(request)
        answer = b""
        while part := client.recv(65_536):
            answer += part
    return answer
