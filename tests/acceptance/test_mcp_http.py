"""MCP over streamable HTTP, as a gateway serves it: with tokens, over a real port."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from mcp import Client
from starlette.datastructures import Headers

from config.settings import Settings
from tests.support.mcp import over_http, text_of
from tests.support.program import Skillbus, wait_for
from workers.channel import Channel
from workers.mcp_server.http import mount_mcp
from workers.runtime import Runtime

TASK = "fire stoneware in an electric kiln"
TOKENS = {"Bearer secret-of-ada": "ada", "Bearer secret-of-bob": "bob"}


def _authorise(scope: Any) -> str | None:
    return TOKENS.get(Headers(scope=scope).get("authorization", ""))


@contextmanager
def _served(channel: Channel) -> Iterator[str]:
    """The address of a gateway with nothing but MCP over a channel."""
    gateway = FastAPI(openapi_url=None)
    mount_mcp(gateway, channel, _authorise)
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        config = uvicorn.Config(gateway, log_level="warning", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server._serve([port])))
        thread.start()
        wait_for(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{port.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            thread.join()


def _settings(library: Skillbus, **groups: Any) -> Settings:
    return Settings(**groups).model_copy(update={"home": library.home})


@pytest.fixture(scope="module")
def channel(library: Skillbus) -> Iterator[Runtime]:
    with Runtime(_settings(library), writable=False) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def url(channel: Runtime) -> Iterator[str]:
    with _served(channel) as address:
        yield address


def _with(
    url: str, token: str, doing: Callable[[Client], Coroutine[Any, Any, None]], mode: str
) -> None:
    async def run() -> None:
        async with over_http(url, token, mode) as client:
            await doing(client)

    asyncio.run(run())


def test_who_leaves_has_the_query_cancelled(library: Skillbus) -> None:
    # Nobody answers: this runtime is not started, and no other is yet.
    waiting = Runtime(_settings(library), writable=False)
    try:
        with _served(waiting) as address:

            async def leave(client: Client) -> None:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await client.call_tool("find_skills", {"task": TASK})

            _with(address, "secret-of-ada", leave, "auto")
            wait_for(lambda: waiting.journal.count_open("query") == 0, 5)
    finally:
        waiting.stop()


def test_a_query_that_nobody_answers_ends_in_time(library: Skillbus) -> None:
    settings = _settings(library, workers={"query_seconds": 1.0})
    waiting = Runtime(settings, writable=False)
    try:
        with _served(waiting) as address:

            async def wait(client: Client) -> None:
                result = await client.call_tool("find_skills", {"task": TASK})
                assert result.is_error
                assert "no answer within 1 s" in text_of(result)

            _with(address, "secret-of-ada", wait, "auto")
            assert waiting.journal.count_open("query") == 0
    finally:
        waiting.stop()


@pytest.mark.parametrize(("mode", "name"), [("auto", "ada"), ("legacy", "bob")])
def test_an_agent_asks_over_http(url: str, channel: Runtime, mode: str, name: str) -> None:
    async def work(client: Client) -> None:
        told: list[str | None] = []

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            told.append(message)

        assert len((await client.list_tools()).tools) == 3
        found = await client.call_tool(
            "find_skills", {"task": TASK, "budget": 900}, progress_callback=tell
        )
        assert not found.is_error, text_of(found)
        data = found.structured_content
        assert data is not None
        assert data["skills"][0]["skill_id"] == "crafts:kiln-firing"
        assert channel.journal.job(data["query_id"]).event.owner == name
        assert told[0] == "asked"
        assert str(told[-1]).startswith("done: ")
        read = await client.call_tool("read_skill", {"skill_id": "crafts:kiln-firing"})
        assert "Prepare the kiln firing" in text_of(read)
        (content,) = (await client.read_resource("skillbus://skills/crafts%3Akiln-firing")).contents
        assert "Prepare the kiln firing" in content.text  # type: ignore[union-attr]
        wrong = await client.call_tool("read_skill", {"skill_id": "../../etc/passwd"})
        assert wrong.is_error

    _with(url, f"secret-of-{name}", work, mode)


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer x"}, {"Authorization": "secret-of-ada"}]
)
def test_without_a_token_that_may_read_nothing_is_served(url: str, headers: dict[str, str]) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for method, body in (("POST", call), ("GET", None), ("DELETE", None)):
        answer = httpx.request(method, url, json=body, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"
        assert "tools" not in answer.text


def test_what_is_no_request_of_the_protocol_is_refused(url: str) -> None:
    headers = {
        "Authorization": "Bearer secret-of-ada",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    for body in (b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"jsonrpc": "1.0"}', b"[" * 5000):
        answer = httpx.post(url, content=body, headers=headers)
        assert 400 <= answer.status_code < 500, (body[:20], answer.status_code)
    large = httpx.post(url, content=b" " * 2_000_000, headers=headers)
    assert large.status_code == 413
