"""Spans of HTTP requests, in the trace that the caller sent or in a new one."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from config.tracing import NO_CONTEXT, NO_SPAN, OpenSpan, Span, TraceContext, parse_context, trace
from workers.mcp.http import PATH as MCP_PATH

_PROBES = ("/healthz", "/readyz", "/metrics", "/v1/status")
"""Paths that are polled; requests for them have no span."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_MAX_PATH_CHARACTERS = 200
_SERVER_ERROR = 500


def start_request_span(scope: Scope, headers: Headers, *, trusted: bool) -> OpenSpan:
    """Return the span of a request; it continues the trace of a valid `traceparent`.

    trusted: whether only the user of this machine can send the request.
    """
    if scope["path"] in _PROBES:
        return NO_SPAN
    method = _name_method(scope)
    attributes = {
        "http.request.method": method,
        "url.path": scope["path"][:_MAX_PATH_CHARACTERS],
        "url.scheme": scope["scheme"],
        "network.protocol.version": scope["http_version"],
    }
    context = _parse_headers(headers)
    return trace(method, "server", [context], attributes, trusted=trusted)


def end_request_span(span: Span, scope: Scope, status: int) -> None:
    """Set route and status on the span of a request. status: 0 if no response was sent."""
    path = MCP_PATH if scope["path"] == MCP_PATH else getattr(scope.get("route"), "path", "")
    if path:
        span.rename(f"{_name_method(scope)} {path}")
        span.set_attributes({"http.route": path})
    if status:
        span.set_attributes({"http.response.status_code": status})
    if status >= _SERVER_ERROR:
        span.fail(str(status))


def _name_method(scope: Scope) -> str:
    """Return the method of a request for the name of its span: callers may send any method, but
    names of spans must be few."""
    return scope["method"] if scope["method"] in _METHODS else "_OTHER"


def _parse_headers(headers: Headers) -> TraceContext:
    """Return the trace context of a request; several `traceparent` headers are invalid."""
    parents = headers.getlist("traceparent")
    if len(parents) != 1:
        return NO_CONTEXT
    return parse_context(parents[0].strip(), ",".join(headers.getlist("tracestate")))
