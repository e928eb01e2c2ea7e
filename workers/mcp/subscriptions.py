"""Streams of `subscriptions/listen`: their number, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from config.errors import SkillbusError
from workers.mcp.catalog_events import CatalogEvents
from workers.mcp.errors import explain_error
from workers.mcp.requester import get_reader

METHOD = "subscriptions/listen"


class Subscriptions:
    """Middleware around the SDK's handler. limit: maximum number of open streams."""

    def __init__(self, events: CatalogEvents, limit: int) -> None:
        self._events = events
        self._limit = limit

    async def serve(self, ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
        """Serve a stream until its client leaves, or the server stops."""
        if ctx.method != METHOD:
            return await call_next(ctx)
        if self._events.streams >= self._limit:
            message = f"{self._limit} streams are open already (gateway.streams); try again later"
            raise MCPError(INTERNAL_ERROR, message)
        wanted = (ctx.params or {}).get("notifications")
        uris = wanted.get("resourceSubscriptions") if isinstance(wanted, Mapping) else None
        watched = [one for one in uris if isinstance(one, str)] if isinstance(uris, list) else []
        try:
            async with self._events.open_stream(get_reader(ctx), watched):
                return await _call_until_stopped(ctx, call_next)
        except SkillbusError as error:
            raise MCPError(INTERNAL_ERROR, explain_error(error)) from error


async def _call_until_stopped(ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
    """Return the handler's result, or, once the HTTP server stops, the
    result that ends a stream."""
    stopping: asyncio.Event | None = None
    if ctx.request is not None:
        from workers.http.limits.slow_clients import (
            STOPPING,  # brings uvicorn, which streams do not need
        )

        stopping = getattr(ctx.request.state, STOPPING, None)
    # No task group: it would wrap the errors of the handler.
    with anyio.CancelScope() as scope:
        watching = asyncio.create_task(_cancel_after(stopping, scope)) if stopping else None
        try:
            return await call_next(ctx)
        finally:
            if watching is not None:
                watching.cancel()
    return {"resultType": "complete", "_meta": {SUBSCRIPTION_ID_META_KEY: ctx.request_id}}


async def _cancel_after(event: asyncio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
