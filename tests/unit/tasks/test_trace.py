"""Traces: one id from an event to all that it leads to, its producer's where it has one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from skills.events import Event, SourceChanged, get_trace_id, new_event, parse_event
from tasks.coordination.local import LocalCoordinator
from tasks.ingest.coalesce import coalesce_jobs
from tasks.journal.protocol import Job, job_id, trace_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def event(**extensions: Any) -> Event:
    return Event(
        id="one",
        source="/elsewhere",
        type="skillbus.source.changed.v1",
        time=datetime.now(UTC),
        data={"source_id": "crafts", "root": "/crafts"},
        **extensions,
    )


def test_a_producers_trace_is_taken_over() -> None:
    assert get_trace_id(event(traceparent=PARENT)) == TRACE
    assert trace_of(event(traceparent=PARENT)) == TRACE
    again = parse_event(event(traceparent=PARENT).model_dump_json())
    assert trace_of(again) == TRACE, "the journal keeps it"
    assert trace_of(event(traceparent="cc" + PARENT[2:] + "-later-versions-add")) == TRACE


@pytest.mark.parametrize(
    "parent",
    [
        "",
        TRACE,
        PARENT.upper(),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{TRACE}-00f067aa0ba902b7-01\nforged",
        7,
        None,
    ],
)
def test_one_of_another_form_is_not(parent: object) -> None:
    strange = event(traceparent=parent)
    assert get_trace_id(strange) == ""
    assert trace_of(strange) == job_id(strange)


def test_a_new_event_may_go_on_with_a_trace() -> None:
    data = SourceChanged(source_id="crafts", root="/crafts")
    assert trace_of(new_event(data, "skillbus/dead", TRACE)) == TRACE
    for unfit in ("", "a-task-id"):
        fresh = new_event(data, "skillbus/dead", unfit)
        assert trace_of(fresh) == fresh.id


def test_an_order_knows_the_traces_of_its_events() -> None:
    first, second = event(), event(traceparent=PARENT)
    jobs = [
        Job(name, "event", one, "accepted", None, "", 0.0, None)
        for name, one in (("1", first), ("2", second))
    ]
    ((order,), refused) = coalesce_jobs(jobs)
    assert refused == []
    assert order.trace_ids == [job_id(first), TRACE]


def test_requests_are_remembered_with_their_trace_and_time() -> None:
    coordinator = LocalCoordinator()
    for seq in range(1_500):
        coordinator.record_ingest_request(seq, f"trace-{seq}", 1.0)
    found = coordinator.get_ingest_requests([1, 1_499])
    assert list(found) == [1_499], "the latest ones only"
    assert found[1_499].trace_id == "trace-1499"
    assert found[1_499].since > 0
