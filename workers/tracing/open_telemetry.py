"""The tracer of `config.tracing`, implemented with the OpenTelemetry SDK."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import Token
from types import TracebackType
from typing import Any

import structlog
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace import Span as SdkSpan
from typing_extensions import override

from config import tracing
from config.errors import StaleError
from config.tracing import NO_CONTEXT, NO_SPAN, Attributes, OpenSpan, Span, TraceContext, Tracer
from config.tracing_settings import TracingSettings
from tasks.message import TRACE_HEADER

_KINDS: Mapping[tracing.SpanKind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}


class OpenTelemetryTracer(Tracer):
    """Makes spans with its own provider; the global one, which libraries use, is left alone.

    Libraries would record the messages of exceptions, which can quote a task or a skill.
    """

    def __init__(self, provider: TracerProvider, settings: TracingSettings) -> None:
        self._tracer = provider.get_tracer("skillbus")
        self._settings = settings

    @override
    def start_span(self, name: str, kind: tracing.SpanKind, attributes: Attributes) -> OpenSpan:
        if not get_current_span().get_span_context().is_valid:
            return NO_SPAN
        return _OpenSpan(self._tracer.start_span(name, kind=_KINDS[kind], attributes=attributes))

    @override
    def start_trace(
        self,
        name: str,
        kind: tracing.SpanKind,
        contexts: Sequence[TraceContext],
        attributes: Attributes,
        trusted: bool,
    ) -> OpenSpan:
        current = get_current_span().get_span_context()
        first, *others = [_to_span_context(one) for one in contexts if one.traceparent] or [current]
        parent: Context | None = None
        if first.trace_id != current.trace_id:
            if not trusted:
                first = self._limit_sampling(first)
            parent = set_span_in_context(NonRecordingSpan(first))
            others.append(current)
        span = self._tracer.start_span(
            name,
            parent,
            kind=_KINDS[kind],
            attributes=attributes,
            links=[Link(one) for one in others if one.is_valid and one != first],
        )
        return _OpenSpan(span, log_trace=True)

    def _limit_sampling(self, context: SpanContext) -> SpanContext:
        """Return the context of a caller, sampled no more often than a trace that begins here.

        Sampling is random and does not depend on the trace id, which the caller chooses.
        """
        settings = self._settings
        if settings.trust_callers or random.random() < settings.sample_ratio:  # noqa: S311
            return context
        return _unsampled(context)

    @override
    def resume(self, context: TraceContext) -> AbstractContextManager[None]:
        return _current(_to_span_context(context))

    @override
    def mute(self) -> AbstractContextManager[None]:
        return _current(_unsampled(get_current_span().get_span_context()))

    @override
    def get_current(self) -> TraceContext:
        return _to_trace_context(get_current_span().get_span_context())

    @override
    def get_parent(self) -> TraceContext:
        span = get_current_span()
        return _to_trace_context(getattr(span, "parent", None) or span.get_span_context())

    @override
    def add_event(self, name: str, attributes: Attributes) -> None:
        get_current_span().add_event(name, attributes)


class _OpenSpan(Span, AbstractContextManager[Span]):
    """A span that is the current one in its `with` block.

    log_trace: whether log lines in the block carry the id of the trace.
    """

    __slots__ = ("_context_token", "_log_token", "_log_trace", "_span")

    def __init__(self, span: SdkSpan, log_trace: bool = False) -> None:
        self._span = span
        self._log_trace = log_trace
        self._context_token: Token[Context] | None = None
        self._log_token: Mapping[str, Token[Any]] = {}

    @property
    @override
    def trace_id(self) -> str:
        return f"{self._span.get_span_context().trace_id:032x}"

    @override
    def rename(self, name: str) -> None:
        self._span.update_name(name)

    @override
    def set_attributes(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    @override
    def fail(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(StatusCode.ERROR)

    @override
    def __enter__(self) -> Span:
        self._context_token = attach(set_span_in_context(self._span))
        if self._log_trace:
            self._log_token = structlog.contextvars.bind_contextvars(
                **{TRACE_HEADER: self.trace_id}
            )
        return self

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Only its type: the message of an error can quote a task or a skill.
        if error is not None and not isinstance(error, StaleError):
            self.fail(type(error).__qualname__)
        if self._context_token is not None:
            detach(self._context_token)
        structlog.contextvars.reset_contextvars(**self._log_token)
        self._span.end()


@contextmanager
def _current(context: SpanContext) -> Iterator[None]:
    """Make a span that has ended, or is of another process, the current one."""
    token = attach(set_span_in_context(NonRecordingSpan(context)))
    try:
        yield
    finally:
        detach(token)


def _unsampled(context: SpanContext) -> SpanContext:
    return SpanContext(
        context.trace_id,
        context.span_id,
        context.is_remote,
        TraceFlags(TraceFlags.DEFAULT),
        context.trace_state,
    )


def _to_span_context(context: TraceContext) -> SpanContext:
    """Return a context in the SDK's form; its text has been checked."""
    _, trace_id, span_id, flags = context.traceparent.split("-")
    return SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16) & TraceFlags.SAMPLED),
        trace_state=TraceState.from_header([context.tracestate]) if context.tracestate else None,
    )


def _to_trace_context(context: SpanContext) -> TraceContext:
    if not context.is_valid:
        return NO_CONTEXT
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return TraceContext(parent, context.trace_state.to_header())
