"""Requests of MCP clients over HTTP: their audit records, and the codes of their errors."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client
from starlette.types import Message, Receive, Scope, Send
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


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    with tiny_backend(tmp_path / "home") as backend:
        yield backend


def send(backend: EmbeddedBackend, method: str, **params: Any) -> dict[str, Any]:
    """The JSON-RPC response to a request over HTTP."""
    tokens = TokenStore(backend.settings.home / "tokens.json")
    if tokens.are_configured():
        tokens.revoke("agent")
    secret = tokens.add("agent", TokenScope.READ)
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {
        "Authorization": f"Bearer {secret}",
        "Accept": "application/json, text/event-stream",
    }

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(create_gateway(backend, AccessRules(tokens)))
        async with httpx.AsyncClient(transport=transport, base_url="http://skillbus") as client:
            return await client.post("/mcp", json=body, headers=headers)

    response = asyncio.run(post())
    assert response.status_code == 200, response.text
    [data] = [one for one in response.text.splitlines() if one.startswith("data: {")]
    answer: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return answer


def list_outcomes(backend: EmbeddedBackend) -> list[tuple[str, str]]:
    """Action and outcome of each audit record."""
    file = backend.settings.home / "audit" / "audit.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [(one["action"], one["outcome"]) for one in rows]


def find_skills(backend: EmbeddedBackend) -> str:
    """Ask for skills; return the id of the query."""
    found = send(backend, "tools/call", name="find_skills", arguments={"task": "fire a kiln"})
    query_id: str = found["result"]["structuredContent"]["query_id"]
    return query_id


def report(backend: EmbeddedBackend, query_id: str) -> bool:
    """Report a missing skill; return whether the tool answers with an error."""
    arguments = {"query_id": query_id, "outcome": "missing"}
    answer = send(backend, "tools/call", name="report_outcome", arguments=arguments)
    return bool(answer["result"].get("isError"))


def test_reports_are_recorded_with_their_outcome(
    backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_id = find_skills(backend)
    assert not report(backend, query_id)
    assert report(backend, "unknown")

    def refuse(*_: Any) -> None:
        raise TransientError("too many events are open")

    monkeypatch.setattr(backend, "accept", refuse)
    assert report(backend, query_id)
    expected = [("outcomes.report", one) for one in ("done", "refused", "failed")]
    assert list_outcomes(backend) == expected


def test_a_report_is_recorded_when_its_client_leaves(
    backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_id = find_skills(backend)
    tokens = TokenStore(backend.settings.home / "tokens.json")
    headers = {
        "Authorization": f"Bearer {tokens.add('leaving', TokenScope.READ)}",
        "Accept": "application/json, text/event-stream",
    }
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

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
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

        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://skillbus") as client:
            with pytest.raises(AssertionError):  # the transport gets no end of the response
                await client.post("/mcp", json=body, headers=headers)

    asyncio.run(leave())
    assert list_outcomes(backend) == [("outcomes.report", "done")]


def test_a_report_on_standard_streams_is_recorded_when_its_client_leaves(
    backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_id = find_skills(backend)
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
    assert list_outcomes(backend) == [("outcomes.report", "done")]


def test_only_reports_need_a_log_that_can_be_written(backend: EmbeddedBackend) -> None:
    (backend.settings.home / "audit").write_text("a file in place of the folder")
    query_id = find_skills(backend)
    assert report(backend, query_id)
    assert list(backend.outcome_store().list_outcomes()) == []


def test_a_report_that_is_stored_and_not_recorded_is_not_to_be_repeated(
    backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_id = find_skills(backend)

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
    backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert send(backend, "resources/list", cursor="a\0b")["error"]["code"] == -32602

    def fail(*_: Any) -> None:
        raise TransientError("the catalog does not answer")

    monkeypatch.setattr(type(backend.skills), "list_published", fail)
    failed = send(backend, "resources/list")["error"]
    assert failed["code"] == -32603
    assert "try again" in failed["message"]


def test_the_status_of_a_refused_message_is_logged_as_a_number(backend: EmbeddedBackend) -> None:
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

    async def post() -> None:
        transport = httpx.ASGITransport(create_gateway(backend))
        async with httpx.AsyncClient(transport=transport, base_url="http://skillbus") as client:
            await client.post("/mcp", content=b"{", headers=headers)

    with capture_logs() as lines:
        asyncio.run(post())
    [status] = [one["status"] for one in lines if one["event"] == "request"]
    assert (status, type(status)) == (400, int)
