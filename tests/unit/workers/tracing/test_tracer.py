"""The tracer: which trace a span belongs to, what is sampled, and what it says of errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import structlog
from structlog.contextvars import get_contextvars

from config import tracing
from config.errors import PermanentError, StaleError
from config.tracing import NO_CONTEXT, TraceContext
from tests.support.servers.collector import PARENT, TRACE, TRACEPARENT, Collector
from workers.tracing.start import tracing as started

CALLER = TraceContext(TRACEPARENT, "vendor=1")
OTHER = "0af7651916cd43dd8448eb211c80319c"
SECRET = "the text of a task"


@contextmanager
def collecting(**settings: Any) -> Iterator[Collector]:
    """A collector that has all spans of the block when it ends."""
    with Collector() as collector, started(collector.settings(**settings)):
        yield collector


def test_a_request_continues_the_trace_of_its_caller() -> None:
    attributes = {"http.request.method": "GET"}
    with (
        collecting() as collector,
        tracing.trace("request", "server", [CALLER], attributes) as opened,
    ):
        assert opened.trace_id == TRACE
        opened.rename("GET /v1/skills")
        with tracing.span("stage", {"count": 3}):
            sent = tracing.current_context()
    request, stage = collector.find("GET /v1/skills"), collector.find("stage")
    assert (request.trace_id, request.parent_id, request.kind) == (TRACE, PARENT, "server")
    assert (stage.trace_id, stage.parent_id, stage.kind) == (TRACE, request.span_id, "internal")
    assert request.attributes == {"http.request.method": "GET"}
    assert stage.attributes == {"count": 3}
    assert sent == TraceContext(stage.context.traceparent, "vendor=1")
    assert request.resource["service.name"] == "skillbus"


def test_without_a_caller_a_trace_begins() -> None:
    with collecting() as collector:
        with tracing.trace("one", "server", [NO_CONTEXT]), tracing.trace("below", "producer"):
            pass
        with tracing.trace("two", "server"):
            pass
    one, below, two = (collector.find(name) for name in ("one", "below", "two"))
    assert (one.parent_id, two.parent_id, below.parent_id) == ("", "", one.span_id)
    assert one.trace_id == below.trace_id != two.trace_id


def test_outside_of_a_trace_there_are_no_spans() -> None:
    with collecting() as collector, tracing.span("redis GET", kind="client"):
        assert tracing.current_context() == NO_CONTEXT
        tracing.add_event("retry")
    assert collector.spans == []


def test_work_for_events_of_several_traces_is_linked_to_them() -> None:
    events = [TraceContext(f"00-{trace}-{PARENT}-01") for trace in (TRACE, OTHER)]
    with collecting() as collector, tracing.trace("task", "consumer", [events[1]]):
        with tracing.trace("both", "internal", events):
            pass
        with tracing.trace("own", "internal", [events[1]]):
            pass
    task, both, own = (collector.find(name) for name in ("task", "both", "own"))
    assert (both.trace_id, both.parent_id) == (TRACE, PARENT)
    assert both.links == [(OTHER, PARENT), (OTHER, task.span_id)]
    assert (own.trace_id, own.parent_id, own.links) == (OTHER, task.span_id, [])


def test_a_trace_is_resumed_by_what_is_sent_later() -> None:
    with collecting() as collector:
        with tracing.resume(CALLER):
            assert tracing.current_context() == CALLER
            with tracing.span("resumed"):
                assert tracing.parent_context() == CALLER
        assert tracing.current_context() == NO_CONTEXT
        with tracing.resume(NO_CONTEXT):
            assert tracing.current_context() == NO_CONTEXT
    assert collector.find("resumed").parent_id == PARENT


def test_polls_are_not_traced_here_and_elsewhere() -> None:
    with collecting() as collector, tracing.trace("request", "server", [CALLER]):
        with tracing.untraced(), tracing.span("redis GET", kind="client"):
            sent = tracing.current_context()
        with tracing.span("stage"):
            pass
    assert sorted(one.name for one in collector) == ["request", "stage"]
    assert (sent.trace_id, sent.traceparent[-2:]) == (TRACE, "00")


def test_errors_are_named_and_not_quoted() -> None:
    with collecting() as collector:
        for error in (PermanentError(SECRET), StaleError(SECRET), KeyboardInterrupt(SECRET)):
            with pytest.raises(type(error)), tracing.trace(type(error).__name__, "internal"):
                raise error
        with tracing.trace("request", "server") as opened:
            opened.fail("503")
    found = {one.name: one.error for one in collector}
    assert found == {
        "PermanentError": "PermanentError",
        "StaleError": None,
        "KeyboardInterrupt": "KeyboardInterrupt",
        "request": "503",
    }
    assert not any(SECRET.encode() in body for body in collector.bodies)
    assert not any(one.events for one in collector)


def test_log_lines_carry_the_trace() -> None:
    with collecting(), structlog.contextvars.bound_contextvars(trace_id="request-id"):
        with tracing.trace("request", "server", [CALLER]), tracing.span("stage"):
            assert get_contextvars()["trace_id"] == TRACE
        assert get_contextvars()["trace_id"] == "request-id"


def test_threads_have_traces_of_their_own() -> None:
    seen = []
    with collecting(), tracing.trace("request", "server", [CALLER]):
        thread = threading.Thread(target=lambda: seen.append(tracing.current_context()))
        thread.start()
        thread.join()
    assert seen == [NO_CONTEXT]


# -- sampling
def _sampled(count: int, traceparent: str, *, trusted: bool, **settings: Any) -> int:
    with collecting(**settings) as collector:
        for _ in range(count):
            with tracing.trace("request", "server", [TraceContext(traceparent)], trusted=trusted):
                pass
    return len(collector.spans)


def test_a_caller_cannot_have_everything_sampled() -> None:
    assert _sampled(50, TRACEPARENT, trusted=False, sample_ratio=0) == 0
    # By chance: a caller that may choose the trace id cannot choose the outcome.
    assert 0 < _sampled(200, f"00-{'0' * 31}1-{PARENT}-01", trusted=False, sample_ratio=0.5) < 200


def test_own_processes_and_trusted_callers_decide_for_the_trace() -> None:
    assert _sampled(20, TRACEPARENT, trusted=True, sample_ratio=0) == 20
    assert _sampled(20, TRACEPARENT, trusted=False, sample_ratio=0, trust_callers=True) == 20


def test_what_a_caller_does_not_keep_is_not_sampled() -> None:
    assert _sampled(20, TRACEPARENT[:-1] + "0", trusted=False) == 0


def test_what_is_not_sampled_still_has_a_trace() -> None:
    with (
        collecting(sample_ratio=0) as collector,
        tracing.trace("request", "server", [CALLER], trusted=False) as opened,
        tracing.span("stage"),
    ):
        assert tracing.current_context().trace_id == TRACE == opened.trace_id
        assert tracing.current_context().traceparent.endswith("-00")
    assert collector.spans == []


def test_the_trace_state_of_a_caller_that_is_not_one_is_dropped() -> None:
    strange = TraceContext(TRACEPARENT, "=,;")
    with collecting() as collector, tracing.trace("request", "server", [strange]):
        assert tracing.current_context().tracestate == ""
    assert collector.find("request").trace_id == TRACE
