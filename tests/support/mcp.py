"""MCP clients as tests use them: over a process's standard streams, or over HTTP."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.program import ROOT, clean_environment


def stdio_parameters(home: Path, **env: str) -> StdioServerParameters:
    """`skillbus mcp` on a home."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "workers.cli", "mcp"],
        env={**clean_environment(), "SKILLBUS_HOME": str(home), "OMP_NUM_THREADS": "1", **env},
        cwd=ROOT,
    )


@contextlib.asynccontextmanager
async def over_stdio(home: Path, mode: Any = "auto", **env: str) -> AsyncIterator[Client]:
    """A client of `skillbus mcp`; what that logs must be nothing."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        async with Client(stdio_client(stdio_parameters(home, **env), errors), mode=mode) as client:
            yield client
        errors.seek(0)
        assert errors.read() == ""


@contextlib.asynccontextmanager
async def over_http(url: str, token: str, mode: Any = "auto") -> AsyncIterator[Client]:
    """A client that sends a token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def text_of(result: Any) -> str:
    """The text of a tool's result."""
    (block,) = result.content
    return str(block.text)
