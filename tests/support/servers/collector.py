"""An OpenTelemetry collector on loopback: takes spans over OTLP (HTTP, protobuf) and keeps them.

with Collector() as collector:
    settings = collector.settings(sample_ratio=0.5)
    ...
    assert collector.find("query retrieve").parent_id == collector.find("task").span_id

Spans come some time after they ended, those of one process in the order in which they ended: where
one is there, so are those below it of its process. For any other, wait with `find` or `get`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from config.tracing import TraceContext
from config.tracing_settings import TracingSettings
from tests.support.program.program import wait_for
from tests.support.servers.loopback import serving

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
"""What a caller sends that has a trace."""


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it arrived; ids in hexadecimal digits. links: (trace, span). seconds: its length.

    error: its `error.type`, None unless its status is that of an error.
    """

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    events: list[str]
    error: str | None
    resource: dict[str, Any]
    seconds: float

    @property
    def context(self) -> TraceContext:
        """As another process would refer to it."""
        return TraceContext(f"00-{self.trace_id}-{self.span_id}-01")


class Collector:
    """Answers exports with `status`; keeps the spans of those that it accepts."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.spans: list[ReceivedSpan] = []
        self.headers: list[dict[str, str]] = []
        self.exports = 0
        self.bodies: list[bytes] = []
        self._stack = ExitStack()
        self.address = ""

    def __enter__(self) -> Self:
        self.address = self._stack.enter_context(serving(_handler(self)))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def settings(self, **others: Any) -> TracingSettings:
        """Settings that export here, soon after a span has ended."""
        return TracingSettings(
            **{"endpoint": self.address, "export_milliseconds": 100, "stop_seconds": 30, **others}
        )

    @property
    def environment(self) -> dict[str, str]:
        """The same for a program."""
        return {
            "SKILLBUS_TRACING__ENDPOINT": self.address,
            "SKILLBUS_TRACING__EXPORT_MILLISECONDS": "100",
            "SKILLBUS_TRACING__STOP_SECONDS": "30",
        }

    def named(self, name: str, trace_id: str = "") -> list[ReceivedSpan]:
        """The spans of a name, of one trace if it is named."""
        return [
            one for one in list(self.spans) if one.name == name and trace_id in ("", one.trace_id)
        ]

    def find(self, name: str, trace_id: str = "") -> ReceivedSpan:
        """The only span of a name; waits until it has come."""
        found: list[ReceivedSpan] = wait_for(lambda: self.named(name, trace_id))
        assert len(found) == 1, [one.name for one in self.spans]
        return found[0]

    def path(self, span: ReceivedSpan) -> list[str]:
        """The names from a span up to the first of its trace; waits for those that are missing."""
        names = [span.name]
        while span.parent_id and span.parent_id != PARENT:
            span = self.get(span.parent_id)
            names.append(span.name)
        return names

    def get(self, span_id: str) -> ReceivedSpan:
        """The span of an id; waits until it has come."""
        found: list[ReceivedSpan] = wait_for(
            lambda: [one for one in list(self.spans) if one.span_id == span_id]
        )
        return found[0]

    def __iter__(self) -> Iterator[ReceivedSpan]:
        """Those that have come so far."""
        return iter(list(self.spans))


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.exports += 1
            collector.headers.append({name.lower(): one for name, one in self.headers.items()})
            status = collector.status if self.path == "/v1/traces" else 404
            if status == 200:
                collector.bodies.append(body)
                collector.spans += _parse(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _parse(body: bytes) -> list[ReceivedSpan]:
    found = []
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _values(group.resource.attributes)
        for scope in group.scope_spans:
            found += [_to_span(one, resource) for one in scope.spans]
    return found


def _to_span(span: trace_pb2.Span, resource: dict[str, Any]) -> ReceivedSpan:
    attributes = _values(span.attributes)
    failed = span.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    assert not span.status.message, "a status says nothing but that it failed"
    return ReceivedSpan(
        span.name,
        trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        attributes,
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        [event.name for event in span.events],
        attributes.get("error.type", "") if failed else None,
        resource,
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
    )


def _values(attributes: Sequence[KeyValue]) -> dict[str, Any]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in attributes}
