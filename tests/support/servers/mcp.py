"""MCP clients as tests use them: over standard streams, over HTTP, or within the process."""

from __future__ import annotations

import base64
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import BlobResourceContents, Request, Result
from pydantic import ConfigDict

from config.settings import Settings
from tests.support.program.program import ROOT, clean_environment
from workers.backend.factory import open_skill_reader
from workers.backend.selector import BackendSelector
from workers.mcp.server import create_server
from workers.processes.interpreter import skillbus_command

T = TypeVar("T")


@dataclass(frozen=True)
class Agent:
    """A client that stays open from test to test."""

    portal: BlockingPortal
    client: Client

    def __call__(self, doing: Callable[[Client], Awaitable[T]]) -> T:
        """Do something with the client."""
        return self.portal.call(doing, self.client)


@contextlib.contextmanager
def agent(opened: contextlib.AbstractAsyncContextManager[Client]) -> Iterator[Agent]:
    """A client in an event loop of its own."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(opened) as client:
        yield Agent(portal, client)


def stdio_parameters(home: Path) -> StdioServerParameters:
    """`skillbus mcp` on a home."""
    program, *arguments = skillbus_command([])
    return StdioServerParameters(
        command=program,
        args=[*arguments, "mcp"],
        env={**clean_environment(), "SKILLBUS_HOME": str(home), "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
    )


@contextlib.asynccontextmanager
async def over_stdio(home: Path) -> AsyncIterator[Client]:
    """A client of `skillbus mcp`; what that logs must be nothing."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        async with Client(stdio_client(stdio_parameters(home), errors)) as client:
            yield client
        errors.seek(0)
        assert errors.read() == ""


@contextlib.asynccontextmanager
async def over_http(url: str, token: str, mode: Any = "auto") -> AsyncIterator[Client]:
    """A client that sends a token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def in_process(settings: Settings) -> AsyncIterator[Client]:
    """A client of the server that `skillbus mcp` runs, without the process."""
    backends, skill_reader = BackendSelector(settings), open_skill_reader(settings)
    try:
        async with Client(create_server(settings, backends.select, skill_reader)) as client:
            yield client
    finally:
        backends.close()
        skill_reader.close()


def text_of(result: Any) -> str:
    """The text of a tool's result."""
    (block,) = result.content
    return str(block.text)


def resource_text(result: Any) -> str:
    """The text of a resource that was read."""
    (content,) = result.contents
    return str(content.text)


class _AnyResult(Result):
    model_config = ConfigDict(extra="allow")


async def ask(client: Client, method: str, **params: Any) -> dict[str, Any]:
    """The result of a method that the client library does not know, as it came."""
    request = Request[dict[str, Any], str](method=method, params=params)
    result = await client.session.send_request(request, _AnyResult)
    return result.model_dump(by_alias=True, mode="json")


async def read_bytes(client: Client, uri: str) -> bytes:
    """The bytes of a resource."""
    (content,) = (await client.read_resource(uri)).contents
    if isinstance(content, BlobResourceContents):
        return base64.b64decode(content.blob)
    return content.text.encode()
