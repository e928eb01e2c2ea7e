"""Requests of MCP clients over HTTP: their audit records, and the codes of their errors."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client
from starlette.types import ASGIApp, Message, Receive, Scope
from starlette.types import Send as SendMessage
from structlog.testing import capture_logs

from config.errors import TransientError
from tests.support.samples.tiny import tiny_backend
from tests.support.servers.mcp import text_of
from workers.audit.log import AuditLog
from workers.backend.embedded import EmbeddedBackend
from workers.backend.protocol import EventStatus
from workers.http.access import AccessRules
from workers.http.app import create_gateway
from workers.http.tokens import TokenScope, TokenStore
from workers.mcp.server import create_server

Send = Callable[..., dict[str, Any]]
Outcomes = Callable[[], list[tuple[str, str]]]
HEADERS = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBackend]:
    with tiny_backend(tmp_path_factory.mktemp("mcp") / "home") as backend:
        yield backend


@pytest.fixture(scope="module")
def headers(backend: EmbeddedBackend) -> dict[str, str]:
    secret = TokenStore(backend.settings.home / "tokens.json").add("agent", TokenScope.READ)
    return {"Authorization": f"Bearer {secret}", **HEADERS}


@pytest.fixture(scope="module")
def gateway(backend: EmbeddedBackend) -> ASGIApp:
    rules = AccessRules(TokenStore(backend.settings.home / "tokens.json"))
    return create_gateway(backend, rules)


@pytest.fixture(scope="module")
def send(gateway: ASGIApp, headers: dict[str, str]) -> Iterator[Send]:
    """Sends a request over HTTP and returns its JSON-RPC response."""

    async def post(body: dict[str, Any]) -> httpx.Response:
        async with open_client(gateway) as client:
            return await client.post("/mcp", json=body, headers=headers)

    with asyncio.Runner() as runner:  # the gateway serves MCP in one loop

        def send(method: str, **params: Any) -> dict[str, Any]:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            response = runner.run(post(body))
            assert response.status_code == 200, response.text
            [data] = [one for one in response.text.splitlines() if one.startswith("data: {")]
            answer: dict[str, Any] = json.loads(data.removeprefix("data: "))
            return answer

        yield send


@pytest.fixture(scope="module")
def query_id(send: Send) -> str:
    """A query for skills that was answered."""
    found = send("tools/call", name="find_skills", arguments={"task": "fire a kiln"})
    query_id: str = found["result"]["structuredContent"]["query_id"]
    return query_id


@pytest.fixture
def outcomes(backend: EmbeddedBackend) -> Outcomes:
    """Reads action and outcome of each audit record of the test."""
    file = backend.settings.home / "audit" / "audit.jsonl"
    file.unlink(missing_ok=True)

    def read() -> list[tuple[str, str]]:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        return [(one["action"], one["outcome"]) for one in rows]

    return read


def open_client(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://skillbus")


def report(send: Send, query_id: str) -> bool:
    """Report a missing skill; return whether the tool answers with an error."""
    arguments = {"query_id": query_id, "outcome": "missing"}
    answer = send("tools/call", name="report_outcome", arguments=arguments)
    return bool(answer["result"].get("isError"))


def test_reports_are_recorded_with_their_outcome(
    backend: EmbeddedBackend,
    send: Send,
    query_id: str,
    outcomes: Outcomes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not report(send, query_id)
    assert report(send, "unknown")

    def refuse(*_: Any) -> None:
        raise TransientError("too many events are open")

    monkeypatch.setattr(backend, "accept", refuse)
    assert report(send, query_id)
    expected = [("outcomes.report", one) for one in ("done", "refused", "failed")]
    assert outcomes() == expected


def test_a_report_is_recorded_when_its_client_leaves(
    backend: EmbeddedBackend,
    query_id: str,
    headers: dict[str, str],
    outcomes: Outcomes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = TokenStore(backend.settings.home / "tokens.json")
    arguments = {"query_id": query_id, "outcome": "missing"}
    params = {"name": "report_outcome", "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

    async def leave() -> None:
        loop, left = asyncio.get_running_loop(), asyncio.Event()

        def wait(_: str) -> EventStatus:
            loop.call_soon_threadsafe(left.set)
            return EventStatus("accepted", "")

        monkeypatch.setattr(backend, "get_event_status", wait)
        gateway = create_gateway(backend, AccessRules(tokens))

        async def app(scope: Scope, receive: Receive, send: SendMessage) -> None:
            is_sent = False

            async def receive_until_left() -> Message:
                nonlocal is_sent
                if not is_sent:
                    message = await receive()
                    is_sent = not message["more_body"]
                    return message
                await left.wait()
                return {"type": "http.disconnect"}

            await gateway(scope, receive_until_left, send)

        async with open_client(app) as client:
            with pytest.raises(AssertionError):  # the transport gets no end of the response
                await client.post("/mcp", json=body, headers=headers)

    asyncio.run(leave())
    assert outcomes() == [("outcomes.report", "done")]


def test_a_report_on_standard_streams_is_recorded_when_its_client_leaves(
    backend: EmbeddedBackend, query_id: str, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = EventStatus("accepted", "")
    monkeypatch.setattr(backend, "get_event_status", lambda _: waiting)

    async def leave() -> None:
        server = create_server(backend.settings, lambda: backend, backend.skills)
        async with Client(server) as client:
            arguments = {"query_id": query_id, "outcome": "missing"}
            with anyio.move_on_after(0.5) as scope:
                await client.call_tool("report_outcome", arguments)
            assert scope.cancelled_caught

    anyio.run(leave)
    assert outcomes() == [("outcomes.report", "done")]


def test_only_reports_need_a_log_that_can_be_written(
    backend: EmbeddedBackend, send: Send, query_id: str
) -> None:
    folder = backend.settings.home / "audit"
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("a file in place of the folder")
    before = list(backend.outcome_store().list_outcomes())
    send("tools/call", name="find_skills", arguments={"task": "fire a kiln"})
    assert report(send, query_id)
    assert list(backend.outcome_store().list_outcomes()) == before
    folder.unlink()


def test_a_report_that_is_stored_and_not_recorded_is_not_to_be_repeated(
    backend: EmbeddedBackend, query_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(AuditLog, "_write", fail)

    async def ask() -> str:
        server = create_server(backend.settings, lambda: backend, backend.skills)
        async with Client(server) as client:
            arguments = {"query_id": query_id, "outcome": "missing"}
            return text_of(await client.call_tool("report_outcome", arguments))

    text = anyio.run(ask)
    assert "outcomes.report: done, but not recorded" in text
    assert "again" not in text


def test_only_wrong_cursors_are_invalid_parameters(
    backend: EmbeddedBackend, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert send("resources/list", cursor="a\0b")["error"]["code"] == -32602

    def fail(*_: Any) -> None:
        raise TransientError("the catalog does not answer")

    monkeypatch.setattr(type(backend.skills), "list_published", fail)
    failed = send("resources/list")["error"]
    assert failed["code"] == -32603
    assert "try again" in failed["message"]


def test_the_status_of_a_refused_message_is_logged_as_a_number(backend: EmbeddedBackend) -> None:
    headers = {**HEADERS, "Content-Type": "application/json"}

    async def post() -> None:
        async with open_client(create_gateway(backend)) as client:
            await client.post("/mcp", content=b"{", headers=headers)

    with capture_logs() as lines:
        asyncio.run(post())
    [status] = [one["status"] for one in lines if one["event"] == "request"]
    assert (status, type(status)) == (400, int)
