"""The sender of a request: the caller that the gateway has checked, or the
user on standard streams."""

from __future__ import annotations

from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context

from skills.access import UNRESTRICTED, Reader

RequestContext = Context | ServerRequestContext[Any]


def get_sender(ctx: RequestContext) -> tuple[str, Reader]:
    """Return the name of the caller's token, "" on standard streams, and the caller's reader."""
    # The request of starlette, whose state holds the caller; None on standard streams.
    request: Any = ctx.request_context.request if isinstance(ctx, Context) else ctx.request
    if request is None:
        return "", UNRESTRICTED
    caller = request.state.caller
    return str(caller.name), cast(Reader, caller.reader)


def get_reader(ctx: RequestContext) -> Reader:
    """Return the reader of the sender, which limits the skills it may see."""
    return get_sender(ctx)[1]
