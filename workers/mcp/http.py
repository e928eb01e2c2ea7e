"""The server of many agents, over streamable HTTP, as a part of the gateway.

Requests are served without sessions: none outlives its answer, so that none can be taken over and
any replica may serve the next.
"""

from __future__ import annotations

import asyncio

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from workers.backend.base import Backend
from workers.mcp.journal_backend import JournalBackend
from workers.mcp.server import create_server
from workers.mcp.skill_reader import SkillReader

PATH = "/mcp"


def mount_mcp(gateway: Starlette, backend: Backend) -> None:
    """Serve MCP at `/mcp` of a gateway over an open channel.

    The gateway's door checks hosts, origins, tokens, rates and sizes before a request comes here.
    There is nothing to GET, as nobody is told anything unasked, and no session to DELETE.
    """
    gateway.router.routes.append(Route(PATH, endpoint=McpApp(backend), methods=["POST"]))


class McpApp:
    """The ASGI application; it begins with the first request, in the loop that serves it."""

    def __init__(self, backend: Backend) -> None:
        query_backend = JournalBackend(backend)
        reader = SkillReader(backend.settings)
        server = create_server(backend.settings, lambda: query_backend, reader)
        server.streamable_http_app(
            stateless_http=True,
            max_request_body_size=backend.settings.gateway.body_bytes,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._manager: StreamableHTTPSessionManager = server.session_manager
        self._running: asyncio.Task[None] | None = None
        self._started = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, which names its caller in its state."""
        await self._ensure_started()
        await self._manager.handle_request(scope, receive, send)

    async def _ensure_started(self) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="skillbus-mcp")
        started = asyncio.create_task(self._started.wait())
        await asyncio.wait({started, self._running}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._running.done():
            self._running.result()

    async def _run(self) -> None:
        """Hold the manager's tasks until the loop ends and cancels this one."""
        async with self._manager.run():
            self._started.set()
            await asyncio.Event().wait()
