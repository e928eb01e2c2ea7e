"""Traces between tasks: headers of messages, recorded requests, and work for several events."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from config import tracing
from config.errors import PermanentError
from config.language_model_settings import LanguageModelSettings
from config.tracing import NO_CONTEXT, TraceContext
from skills.events import Event, get_trace_context, new_event, with_trace_context
from skills.events.requests import SourceChanged
from tasks.broker.broker_config import BrokerConfig
from tasks.coordination.local import LocalCoordinator
from tasks.ingest.coalesce import coalesce_jobs
from tasks.journal.protocol import Job, job_id
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.language_model.protocol import ModelRequest, ModelUnavailableError
from tasks.message import SENT_HEADER, TRACE_HEADER, parse_trace_headers, trace_headers
from tasks.metrics_recorder import NullMetrics, time_stage
from tests.support.servers.collector import PARENT, TRACE, TRACEPARENT, Collector
from tests.support.servers.language_model import LanguageModelServer
from workers.tracing.start import tracing as started

CONTEXT = TraceContext(TRACEPARENT, "vendor=1")
OTHER = TraceContext(f"00-0af7651916cd43dd8448eb211c80319c-{PARENT}-01")


class _Works(BaseModel):
    works: bool


def test_a_message_carries_its_trace_and_when_it_was_sent() -> None:
    headers = trace_headers(TRACE, CONTEXT, 100.0)
    assert headers == {
        TRACE_HEADER: TRACE,
        "traceparent": TRACEPARENT,
        "tracestate": "vendor=1",
        SENT_HEADER: "100.000000",
    }
    assert parse_trace_headers(SimpleNamespace(**headers), 101.5) == (CONTEXT, 1.5)
    # Of a machine whose clock is ahead.
    assert parse_trace_headers(SimpleNamespace(**headers), 99.0) == (CONTEXT, 0.0)


def test_without_traces_a_message_is_as_before() -> None:
    assert trace_headers(TRACE, NO_CONTEXT, 100.0) == {TRACE_HEADER: TRACE}
    assert trace_headers(None, NO_CONTEXT, 100.0) == {}
    assert parse_trace_headers(SimpleNamespace(id="task"), 100.0) == (NO_CONTEXT, 0.0)


@pytest.mark.parametrize("sent", ["yesterday", "", None, "nan"])
def test_strange_headers_cost_no_task(sent: Any) -> None:
    request = SimpleNamespace(traceparent="nonsense", tracestate="x", sent=sent)
    assert parse_trace_headers(request, 100.0) == (NO_CONTEXT, 0.0)


@pytest.mark.parametrize(
    ("url", "system"),
    [
        ("memory://localhost//", "memory"),
        ("redis://127.0.0.1:1/0", "redis"),
        ("amqps://me@127.0.0.1/", "rabbitmq"),
    ],
)
def test_brokers_are_named(url: str, system: str) -> None:
    assert BrokerConfig(url, "", {}).system == system


# -- events
def _event(name: str, context: TraceContext, source_id: str = "crafts") -> Event:
    data = SourceChanged(source_id=source_id, root="/crafts").model_dump(mode="json")
    made = Event(
        id=name,
        source="/elsewhere",
        type="skillbus.source.changed.v1",
        time=datetime.now(UTC),
        data=data,
    )
    return with_trace_context(made, context)


def test_a_recorded_event_keeps_its_trace_and_its_id() -> None:
    event = new_event(SourceChanged(source_id="crafts"), "skillbus/test")
    recorded = with_trace_context(event, CONTEXT)
    assert get_trace_context(Event.model_validate_json(recorded.model_dump_json())) == CONTEXT
    assert job_id(recorded) == job_id(event)
    assert with_trace_context(recorded, NO_CONTEXT) == recorded
    assert get_trace_context(with_trace_context(recorded, OTHER)) == OTHER, "no state of another"


def test_coalesced_events_are_linked() -> None:
    jobs = [
        Job(name, "event", _event(name, context), "accepted", None, "", 0.0, None)
        for name, context in (("1", CONTEXT), ("2", OTHER), ("3", NO_CONTEXT))
    ]
    ((batch,), refused) = coalesce_jobs(jobs)
    assert refused == []
    with (
        Collector() as collector,
        started(collector.settings()),
        tracing.trace("process skillbus.plan", "consumer", [OTHER]),
        batch.start_span("plan events"),
    ):
        pass
    task, plan = collector.find("process skillbus.plan"), collector.find("plan events")
    assert (plan.trace_id, plan.parent_id) == (TRACE, PARENT)
    assert plan.links == [(OTHER.trace_id, PARENT), (task.trace_id, task.span_id)]
    assert plan.attributes == {"skillbus.events": 3}


def test_a_request_for_ingest_keeps_the_span_that_planned_it() -> None:
    coordinator = LocalCoordinator()
    coordinator.record_ingest_request(1, "trace", 1.0)
    with (
        Collector() as collector,
        started(collector.settings()),
        tracing.trace("plan events", "internal", [CONTEXT]),
    ):
        coordinator.record_ingest_request(2, TRACE, 1.0)
    requests = coordinator.get_ingest_requests([1, 2])
    planned = collector.find("plan events")
    assert requests[1].context == NO_CONTEXT
    assert requests[2].context == TraceContext(planned.context.traceparent, "vendor=1")


# -- stages and the language model
def test_a_stage_that_fails_is_a_failed_span() -> None:
    with (
        Collector() as collector,
        started(collector.settings()),
        pytest.raises(PermanentError),
        tracing.trace("task", "consumer"),
        time_stage(NullMetrics(), "skillbus.ingest", "read"),
    ):
        raise PermanentError("the text of a skill")
    assert collector.find("ingest read").error == "PermanentError"
    assert not any(b"the text of a skill" in body for body in collector.bodies)


def test_a_question_to_the_language_model_is_a_span() -> None:
    secret = "the text of a task"
    request = ModelRequest(
        stage="select", version=1, instructions=secret, data=secret, max_tokens=100, seconds=60
    )
    with (
        LanguageModelServer(lambda asked: {"works": True}) as server,
        Collector() as collector,
        started(collector.settings()),
        tracing.trace("task", "consumer"),
    ):
        settings: LanguageModelSettings = server.settings()
        model = OpenAILanguageModel(settings)
        answer = model.complete(request, _Works)
        model.close()
        with pytest.raises(ModelUnavailableError):
            model.complete(request, _Works)
    done, failed = collector.named(f"chat {settings.model}")
    assert done.kind == "client"
    assert done.attributes["gen_ai.operation.name"] == "chat"
    assert done.attributes["gen_ai.request.model"] == settings.model
    assert done.attributes["gen_ai.usage.input_tokens"] == answer.usage.prompt
    assert done.attributes["gen_ai.usage.output_tokens"] == answer.usage.completion
    assert done.attributes["server.address"] == "127.0.0.1"
    assert failed.error == "ModelUnavailableError"
    assert not any(secret.encode() in body for body in collector.bodies)
