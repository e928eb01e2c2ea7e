"""Spans of HTTP requests: the trace that a caller continues or a request begins."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from config.tracing import NO_CONTEXT, NO_SPAN, OpenSpan, Span, TraceContext, parse_context, trace
from workers.mcp.http import PATH as MCP_PATH

_PROBES = ("/healthz", "/readyz", "/metrics", "/v1/status")
"""Paths that are asked all the time, whose requests are no spans."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_MAX_PATH_CHARACTERS = 200
_SERVER_ERROR = 500


def start_request_span(scope: Scope, headers: Headers, *, trusted: bool) -> OpenSpan:
    """The span of a request; it continues the trace of a valid `traceparent`.

    trusted: whether only the user of this machine can send it.
    """
    if scope["path"] in _PROBES:
        return NO_SPAN
    # Callers choose methods too: a name of a span is one of few.
    method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
    attributes = {
        "http.request.method": method,
        "url.path": scope["path"][:_MAX_PATH_CHARACTERS],
        "url.scheme": scope["scheme"],
        "network.protocol.version": scope["http_version"],
    }
    context = _parse_headers(headers)
    return trace(method, "server", [context], attributes, trusted=trusted)


def end_request_span(span: Span, scope: Scope, status: int) -> None:
    """Give a request's span the route that answered, and the status; 0: none was sent."""
    path = MCP_PATH if scope["path"] == MCP_PATH else getattr(scope.get("route"), "path", "")
    if path:
        span.rename(f"{scope['method']} {path}")
        span.set_attributes({"http.route": path})
    if status:
        span.set_attributes({"http.response.status_code": status})
    if status >= _SERVER_ERROR:
        span.fail(str(status))


def _parse_headers(headers: Headers) -> TraceContext:
    """The trace context of a request; several `traceparent` headers are not valid."""
    parents = headers.getlist("traceparent")
    if len(parents) != 1:
        return NO_CONTEXT
    return parse_context(parents[0].strip(), ",".join(headers.getlist("tracestate")))
