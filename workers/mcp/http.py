"""The MCP server over streamable HTTP, as a part of the gateway.

It has no sessions: none can be hijacked, and any replica may serve the next request.
"""

from __future__ import annotations

import asyncio

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from workers.backend.store_backend import StoreBackend
from workers.mcp.server import create_server

PATH = "/mcp"


def mount_mcp(gateway: Starlette, backend: StoreBackend) -> None:
    """Serve MCP at `/mcp` of a gateway.

    The middleware of the gateway has checked host, origin, token, rate and size of a request. Only
    POST is routed: the server sends no notifications to GET and has no session to DELETE.
    """
    gateway.router.routes.append(Route(PATH, endpoint=McpApp(backend), methods=["POST"]))


class McpApp:
    """The ASGI application; it starts with the first request, in the loop that serves it."""

    def __init__(self, backend: StoreBackend) -> None:
        server = create_server(backend.settings, lambda: backend, backend.skills)
        server.streamable_http_app(
            stateless_http=True,
            max_request_body_size=backend.settings.gateway.body_bytes,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._manager: StreamableHTTPSessionManager = server.session_manager
        self._running: asyncio.Task[None] | None = None
        self._started = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; its state holds the caller."""
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="skillbus-mcp")
        await self._started.wait()
        await self._manager.handle_request(scope, receive, send)

    async def _run(self) -> None:
        """Keep the manager's tasks running until the loop cancels this one."""
        async with self._manager.run():
            self._started.set()
            await asyncio.Event().wait()
