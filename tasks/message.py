"""Format of task messages: one list of ids in the body, short texts in the headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from config.errors import PermanentError
from config.tracing import TraceContext, context_headers, parse_context

TRACE_HEADER = "trace_id"
"""Header with the trace id of the event or query that led to the task."""

SENT_HEADER = "sent"
"""Header with the time at which a traced task was sent, in seconds since the epoch."""

UNREADABLE_HEADER = "unreadable"
"""Header of a message that the broker holds and no program could decode: the reason."""

TEXT_HEADERS = {
    "expires": 200,
    TRACE_HEADER: 200,
    "traceparent": 200,
    "tracestate": 512,
    SENT_HEADER: 40,
}
"""Headers of a message that are kept, with their maximum number of characters."""

_MAX_TEXT_CHARACTERS = 200


def parse_task_ids(content: Any) -> list[str]:
    """Return the ids in a message body, `[[ids], {}, …]` as Celery writes it (protocol 2).

    Raises PermanentError for any other body.
    """
    if isinstance(content, list) and len(content) == 3:
        args, kwargs, embed = content
        followups = embed.values() if isinstance(embed, dict) else [embed]
        if kwargs or any(followups) or not isinstance(args, list) or len(args) != 1:
            raise PermanentError(f"a task takes one list of ids, not {_shorten(content)}")
        ids = args[0]
        if isinstance(ids, list) and all(isinstance(one, str) for one in ids):
            return ids
    raise PermanentError(f"a task takes one list of ids, not {_shorten(content)}")


def trace_headers(trace_id: str | None, context: TraceContext, now: float) -> dict[str, str]:
    """Return the headers with which a task continues a trace; a trace id alone only names it in
    logs."""
    headers = {TRACE_HEADER: trace_id} if trace_id else {}
    if context.traceparent:
        headers |= {**context_headers(context), SENT_HEADER: f"{now:.6f}"}
    return headers


def parse_trace_headers(request: object, now: float) -> tuple[TraceContext, float]:
    """Return the trace that a task continues, from Celery's request, and the wait of its message.

    The wait is in seconds, 0 if the clocks of two machines differ by more.
    """
    context = parse_context(
        getattr(request, "traceparent", None), getattr(request, "tracestate", None)
    )
    try:
        waited = now - float(getattr(request, SENT_HEADER, None) or now)
    except ValueError:
        waited = 0.0
    return context, max(0.0, waited)  # also of a NaN


def parse_text_header(
    headers: Mapping[str, Any], name: str, max_characters: int = _MAX_TEXT_CHARACTERS
) -> str:
    """Return a header that is a short text; raises PermanentError for any other."""
    value = headers.get(name)
    if isinstance(value, str) and len(value) <= max_characters:
        return value
    raise PermanentError(f"header {name!r} is not a short text but {_shorten(value)}")


def _shorten(value: Any) -> str:
    try:
        return repr(value)[:_MAX_TEXT_CHARACTERS]
    except RecursionError:
        return "a value nested too deeply"
