"""Spans of traces, for all layers. Without a tracer every function returns at once.

`workers.tracing` sets the tracer, which is the only part that imports OpenTelemetry. A span names
what is done and never quotes a task or a skill.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
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
    """A span as another process refers to it, by W3C Trace Context; "" for no span.

    Of a version of `traceparent` later than 00 only what 00 defines is kept.
    """

    traceparent: str = ""
    tracestate: str = ""

    @property
    def trace_id(self) -> str:
        """The id of the trace: 32 hexadecimal digits, "" without one."""
        return self.traceparent[3:35]


NO_CONTEXT = TraceContext()


class Span(Protocol):
    """A piece of work. trace_id: of its trace, "" where none is recorded."""

    @property
    def trace_id(self) -> str:
        """The id of the trace: 32 hexadecimal digits, "" without one."""
        ...

    def rename(self, name: str) -> None:
        """Give it another name."""
        ...

    def set_attributes(self, attributes: Attributes) -> None:
        """Add attributes."""
        ...

    def fail(self, kind: str) -> None:
        """Mark it as failed. kind: of the error, such as a status."""
        ...


OpenSpan = AbstractContextManager[Span]
"""A span for the duration of a `with` block; an exception makes it one that failed."""


class Tracer(Protocol):
    """Makes spans. No call raises or waits; see the functions of this module."""

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
    """Where no trace is recorded."""

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


class _Nothing(AbstractContextManager[None]):
    """Does nothing."""

    def __exit__(self, *exc_info: object) -> None:
        return None


NO_SPAN = _NoSpan()
_NOTHING = _Nothing()
_NO_ATTRIBUTES: Attributes = {}
_tracer: Tracer | None = None


def set_tracer(tracer: Tracer | None) -> None:
    """Have this process make spans; None: no more."""
    global _tracer
    _tracer = tracer


def is_tracing() -> bool:
    """Whether this process makes spans."""
    return _tracer is not None


def span(
    name: str, attributes: Attributes = _NO_ATTRIBUTES, kind: SpanKind = "internal"
) -> OpenSpan:
    """A span below the current one; none outside of any trace."""
    return NO_SPAN if _tracer is None else _tracer.start_span(name, kind, attributes)


def trace(
    name: str,
    kind: SpanKind,
    contexts: Sequence[TraceContext] = (),
    attributes: Attributes = _NO_ATTRIBUTES,
    *,
    trusted: bool = True,
) -> OpenSpan:
    """A span that continues the trace of the first context, and is linked to those of the others.

    It is below the current span if that is of the same trace, otherwise linked to it. Without a
    context it is below the current span, or begins a trace. Log lines carry the id of its trace.
    trusted: False for contexts of callers, which cannot have more sampled than the settings allow.
    """
    if _tracer is None:
        return NO_SPAN
    return _tracer.start_trace(name, kind, contexts, attributes, trusted)


def resume(context: TraceContext) -> AbstractContextManager[None]:
    """Have what follows, in the `with` block, continue the trace of a span that has ended."""
    return _NOTHING if _tracer is None or not context.traceparent else _tracer.resume(context)


def untraced() -> AbstractContextManager[None]:
    """Keep no span of what is done in the `with` block, here and in other processes: of polls."""
    return _NOTHING if _tracer is None else _tracer.mute()


def current_context() -> TraceContext:
    """The current span, for the next process; `NO_CONTEXT` outside of any trace."""
    return NO_CONTEXT if _tracer is None else _tracer.get_current()


def parent_context() -> TraceContext:
    """The parent of the current span, to repeat this span's work under it; `NO_CONTEXT` without."""
    return NO_CONTEXT if _tracer is None else _tracer.get_parent()


def add_event(name: str, attributes: Attributes = _NO_ATTRIBUTES) -> None:
    """Note on the current span that something happened."""
    if _tracer is not None:
        _tracer.add_event(name, attributes)


def parse_context(traceparent: object, tracestate: object = "") -> TraceContext:
    """The context that a caller sent; `NO_CONTEXT` for a `traceparent` that is not valid.

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
    """A context as headers or as extension attributes of an event; without empty ones."""
    return {name: value for name, value in context._asdict().items() if value}
