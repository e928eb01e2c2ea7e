"""Spans of traces, for all layers. Without a tracer every function returns at once.

`workers.tracing` sets the tracer and is the only part that imports OpenTelemetry. Names of spans
describe the work; no span quotes a task or a skill.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Literal, NamedTuple, Protocol

Attributes = Mapping[str, str | bool | int | float]
"""Attributes of a span, named by the semantic conventions of OpenTelemetry or `skillbus.…`."""

SpanKind = Literal["internal", "server", "client", "producer", "consumer"]

_TRACEPARENT = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})"
    r"-(?P<span>(?!0{16})[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_TRACESTATE = re.compile(r"[\x20-\x7e\t]{1,512}")


class TraceContext(NamedTuple):
    """Reference to a span for another process, by W3C Trace Context; "" for no span.

    From a `traceparent` of a version later than 00, only the fields that 00 defines are kept.
    """

    traceparent: str = ""
    tracestate: str = ""

    @property
    def trace_id(self) -> str:
        """The id of the trace: 32 hexadecimal digits, or ""."""
        return self.traceparent[3:35]


NO_CONTEXT = TraceContext()


class Span(Protocol):
    """A timed piece of work in a trace."""

    @property
    def trace_id(self) -> str:
        """The id of the trace: 32 hexadecimal digits, or ""."""
        ...

    def rename(self, name: str) -> None:
        """Change the name of the span."""
        ...

    def set_attributes(self, attributes: Attributes) -> None:
        """Add attributes to the span."""
        ...

    def fail(self, kind: str) -> None:
        """Mark the span as failed. kind: kind of the error, such as a status."""
        ...


OpenSpan = AbstractContextManager[Span]
"""A span for the duration of a `with` block; an exception marks it as failed."""


class Tracer(Protocol):
    """Creates spans. No call raises or waits; see the functions of this module."""

    def start_span(self, name: str, kind: SpanKind, attributes: Attributes) -> OpenSpan:
        """See `span`."""
        ...

    def start_trace(
        self,
        name: str,
        kind: SpanKind,
        contexts: Sequence[TraceContext],
        attributes: Attributes,
        trusted: bool,
    ) -> OpenSpan:
        """See `trace`."""
        ...

    def resume(self, context: TraceContext) -> AbstractContextManager[None]:
        """See `resume`."""
        ...

    def mute(self) -> AbstractContextManager[None]:
        """See `untraced`."""
        ...

    def get_current(self) -> TraceContext:
        """See `current_context`."""
        ...

    def get_parent(self) -> TraceContext:
        """See `parent_context`."""
        ...

    def add_event(self, name: str, attributes: Attributes) -> None:
        """See `add_event`."""
        ...


class _NoSpan(Span):
    """Span that does nothing, used where no trace is recorded."""

    trace_id = ""

    def rename(self, name: str) -> None:
        """Do nothing."""

    def set_attributes(self, attributes: Attributes) -> None:
        """Do nothing."""

    def fail(self, kind: str) -> None:
        """Do nothing."""

    def __enter__(self) -> _NoSpan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


NO_SPAN = _NoSpan()
_NOTHING = nullcontext()
_NO_ATTRIBUTES: Attributes = {}
_tracer: Tracer | None = None


def set_tracer(tracer: Tracer | None) -> None:
    """Set the tracer of this process; None switches tracing off."""
    global _tracer
    _tracer = tracer


def is_tracing() -> bool:
    """Return whether this process makes spans."""
    return _tracer is not None


def span(
    name: str, attributes: Attributes = _NO_ATTRIBUTES, kind: SpanKind = "internal"
) -> OpenSpan:
    """Start a span below the current span; outside of any trace, a span that does nothing."""
    return NO_SPAN if _tracer is None else _tracer.start_span(name, kind, attributes)


def trace(
    name: str,
    kind: SpanKind,
    contexts: Sequence[TraceContext] = (),
    attributes: Attributes = _NO_ATTRIBUTES,
    *,
    trusted: bool = True,
) -> OpenSpan:
    """Start a span that continues the trace of the first context and links to the other contexts.

    If the current span is of the same trace, the new span is its child; otherwise it is linked to
    it. Without a context the new span is a child of the current span, or begins a trace. Log lines
    carry the id of its trace. trusted: False for contexts of callers, which cannot have more
    traces sampled than the settings allow.
    """
    if _tracer is None:
        return NO_SPAN
    return _tracer.start_trace(name, kind, contexts, attributes, trusted)


def resume(context: TraceContext) -> AbstractContextManager[None]:
    """Continue the trace of a span that has ended, for the duration of the `with` block."""
    return _NOTHING if _tracer is None or not context.traceparent else _tracer.resume(context)


def untraced() -> AbstractContextManager[None]:
    """Record no spans of the `with` block, neither here nor in called processes; used for polls."""
    return _NOTHING if _tracer is None else _tracer.mute()


def current_context() -> TraceContext:
    """Return the context of the current span, for the next process; `NO_CONTEXT` if none."""
    return NO_CONTEXT if _tracer is None else _tracer.get_current()


def parent_context() -> TraceContext:
    """Return the context of the current span's parent, or `NO_CONTEXT`.

    Work that is repeated after a crash continues from it, next to the span of the first try.
    """
    return NO_CONTEXT if _tracer is None else _tracer.get_parent()


def add_event(name: str, attributes: Attributes = _NO_ATTRIBUTES) -> None:
    """Add an event to the current span."""
    if _tracer is not None:
        _tracer.add_event(name, attributes)


def parse_context(traceparent: object, tracestate: object = "") -> TraceContext:
    """Return the context that a caller sent; `NO_CONTEXT` for an invalid `traceparent`.

    A `tracestate` that is not printable ASCII of at most 512 characters is dropped.
    """
    found = _TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None or (found["version"] == "00" and found["more"]):
        return NO_CONTEXT
    is_state = isinstance(tracestate, str) and _TRACESTATE.fullmatch(tracestate)
    return TraceContext(
        f"00-{found['trace']}-{found['span']}-{found['flags']}", str(tracestate) if is_state else ""
    )


def context_headers(context: TraceContext) -> dict[str, str]:
    """Return a context as headers or extension attributes of an event, without empty values."""
    return {name: value for name, value in context._asdict().items() if value}
