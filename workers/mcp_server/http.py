"""The server of many agents, over streamable HTTP, as a part of the gateway.

Requests are served without sessions: none outlives its answer, so that none can be taken over and
any replica may serve the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from workers.channel import Channel
from workers.mcp_server.server import OWNER, create_server
from workers.mcp_server.shelf import Shelf
from workers.mcp_server.ways import ChannelWay

PATH = "/mcp"
LARGEST_BODY = 1_048_576

Authorise = Callable[[Scope], str | None]
"""The name of the token of a request, "" for the user's own, None for one that may not read."""


def caller_name(scope: Scope) -> str | None:
    """Who asks, as the gateway's door has found out."""
    caller = scope.get("state", {}).get("caller")
    return None if caller is None else str(caller.name)


def mount_mcp(gateway: Starlette, channel: Channel, authorise: Authorise = caller_name) -> McpApp:
    """Serve MCP at `/mcp` of a gateway over an open channel.

    The gateway checks hosts, origins and tokens before a request comes here; the route stands in no
    OpenAPI document.
    """
    app = McpApp(channel, authorise)
    gateway.router.routes.append(Route(PATH, endpoint=app))
    return app


class McpApp:
    """The ASGI application; it begins with the first request, in the loop that serves it."""

    def __init__(self, channel: Channel, authorise: Authorise) -> None:
        way = ChannelWay(channel)
        server = create_server(channel.settings, lambda: way, Shelf(channel.settings))
        # Names of hosts and origins are the gateway's to check.
        server.streamable_http_app(
            stateless_http=True,
            max_request_body_size=LARGEST_BODY,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._manager: StreamableHTTPSessionManager = server.session_manager
        self._authorise = authorise
        self._running: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        owner = self._authorise(scope)
        if owner is None:
            refusal = JSONResponse(
                {
                    "title": "not known",
                    "status": 401,
                    "detail": "send `Authorization: Bearer TOKEN` with a token that may read",
                },
                status_code=401,
                media_type="application/problem+json",
                headers={"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        await self._begin()
        await self._manager.handle_request({**scope, OWNER: owner}, receive, send)

    async def _begin(self) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="skillbus-mcp")
        begun = asyncio.create_task(self._begun.wait())
        await asyncio.wait({begun, self._running}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._running.done():
            self._running.result()

    async def _run(self) -> None:
        """Hold the manager's tasks until the loop ends and cancels this one."""
        async with self._manager.run():
            self._begun.set()
            await asyncio.Event().wait()
