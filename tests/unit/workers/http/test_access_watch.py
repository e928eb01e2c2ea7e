"""Responses whose caller loses access before they are complete."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from config.inbound_settings import GatewaySettings
from config.settings import Settings
from workers.audit.log import AuditLog
from workers.http import access_watch
from workers.http.access import AccessMiddleware, AccessRules
from workers.http.problems import handle_disconnect
from workers.http.tokens import TokenScope, TokenStore

SECRET = "what only readers get"


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenStore:
    monkeypatch.setattr(access_watch, "WATCH_SECONDS", 0.01)
    store = TokenStore(tmp_path / "tokens.json")
    store.add("other", TokenScope.ADMIN)
    return store


async def disconnected(request: Request) -> None:
    """Wait until the client has left, as it seems to the application."""
    while not await request.is_disconnected():
        await asyncio.sleep(0.001)


def ask(tokens: TokenStore, folder: Path, kind: str, lose: Callable[[], None]) -> httpx.Response:
    """The response to a request whose caller loses access while the application answers."""

    async def stream(request: Request) -> Response:
        async def events() -> Any:
            yield "first\n"
            lose()
            await disconnected(request)
            yield SECRET

        return StreamingResponse(events(), media_type="text/event-stream")

    async def wait(request: Request) -> Response:
        await request.body()
        lose()
        await disconnected(request)
        return JSONResponse({"text": SECRET}, 202)

    async def change(request: Request) -> Response:
        await request.body()
        return JSONResponse({"text": SECRET}, 202)

    async def send_slowly() -> AsyncIterator[bytes]:
        yield b"{"
        lose()
        await asyncio.sleep(60)
        yield b"}"

    routes = [
        Route("/stream", stream),
        Route("/wait", wait),
        Route("/v1/skills", wait, methods=["POST"]),
        Route("/v1/sources", change, methods=["POST"]),
    ]
    app = AccessMiddleware(
        Starlette(routes=routes, exception_handlers={ClientDisconnect: handle_disconnect}),
        AccessRules(tokens),
        GatewaySettings(),
        AuditLog(Settings(home=folder)),
    )
    verb, path, content = {
        "stream": ("GET", "/stream", None),
        "wait": ("GET", "/wait", None),
        "change": ("POST", "/v1/skills", None),
        "slow change": ("POST", "/v1/sources", send_slowly()),
    }[kind]
    headers = {"Authorization": f"Bearer {tokens.add('reader', TokenScope.WRITE, groups=['hr'])}"}

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://skillbus") as client:
            return await client.request(verb, path, headers=headers, content=content)

    return asyncio.run(send())


def _revoke(tokens: TokenStore) -> None:
    tokens.revoke("reader")


def _change_groups(tokens: TokenStore) -> None:
    stored = json.loads(tokens.path.read_text())
    tokens.path.write_text(json.dumps([one | {"groups": ["finance"]} for one in stored]))


def _end(tokens: TokenStore) -> None:
    stored = json.loads(tokens.path.read_text())
    tokens.path.write_text(json.dumps([one | {"expires": 1.0} for one in stored]))


def _make_unreadable(tokens: TokenStore) -> None:
    tokens.path.chmod(0o644)


LOSSES = (_revoke, _change_groups, _end, _make_unreadable)


@pytest.mark.parametrize("lose", LOSSES)
def test_a_stream_ends(tokens: TokenStore, tmp_path: Path, lose: Any) -> None:
    answer = ask(tokens, tmp_path, "stream", lambda: lose(tokens))
    assert (answer.status_code, answer.text) == (200, "first\n")


@pytest.mark.parametrize("kind", ["wait", "slow change"])
@pytest.mark.parametrize("lose", LOSSES)
def test_an_answer_that_has_not_begun_is_refused(
    tokens: TokenStore, tmp_path: Path, lose: Any, kind: str
) -> None:
    answer = ask(tokens, tmp_path, kind, lambda: lose(tokens))
    assert answer.status_code == (503 if lose is _make_unreadable else 401)
    assert SECRET not in answer.text


def test_who_cannot_be_checked_has_no_access(tokens: TokenStore) -> None:
    async def fail() -> bool:
        raise RuntimeError("a fault")

    async def unused(*_: Any) -> Any:
        raise AssertionError

    async def run() -> None:
        async with access_watch.AccessWatch(fail, lambda: False, unused, unused) as watch:
            while not watch.is_lost:
                await asyncio.sleep(0.001)
            task = watch._task
        assert task is not None
        assert isinstance(task.exception(), RuntimeError)

    asyncio.run(run())


def test_who_has_changed_something_learns_it(tokens: TokenStore, tmp_path: Path) -> None:
    answer = ask(tokens, tmp_path, "change", lambda: _revoke(tokens))
    assert (answer.status_code, answer.json()) == (202, {"text": SECRET})
