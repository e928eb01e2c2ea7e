"""Traces across the processes of a distributed deployment, its servers and a crash."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from config.tracing import TraceContext, trace
from tasks.policies import QUERY
from tests.support.program.program import wait_for
from tests.support.samples.library import write_topics
from tests.support.servers.collector import PARENT, TRACE, TRACEPARENT, Collector
from tests.support.servers.distributed import REST, Deployments, Distributed, deployments
from tests.support.servers.servers import RunServers
from tests.support.servers.submitting import STREAM, OnRedis, query, reply_name
from workers.tracing.start import tracing

__all__ = ["deployments"]

TASK = "true a bicycle wheel"
LOST_TRACE = "3af7651916cd43dd8448eb211c80319c"
LAST_TRACE = "4af7651916cd43dd8448eb211c80319c"
MESSAGE_TRACE = "5af7651916cd43dd8448eb211c80319c"
DATABASES = {"elasticsearch", "neo4j", "redis"}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as opened:
        yield opened


@pytest.fixture(scope="module")
def distributed(deployments: Deployments, collector: Collector) -> Iterator[Distributed]:
    made = deployments(
        **collector.environment,
        SKILLBUS_WORKERS__RECONCILE_SECONDS="1",
        SKILLBUS_SERVERS__TIMEOUT_SECONDS="5",
    )
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def client(distributed: Distributed) -> Iterator[httpx.Client]:
    with distributed.gateway() as (opened, _):
        yield opened


def test_a_sync_is_one_trace_through_all_workers(
    distributed: Distributed, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = write_topics(tmp_path_factory.mktemp("crafts"))
    distributed.skillbus("sync", str(root), "--source", "crafts")
    distributed.wait_done()
    command = collector.find("skillbus sync")
    published = collector.find("ingest publish", command.trace_id)
    assert collector.path(published) == [
        "ingest publish",
        "process skillbus.ingest",
        "plan events",
        "process skillbus.plan",
        "record skillbus.source.changed.v1",
        "skillbus sync",
    ]
    below = [one for one in collector if one.parent_id == published.span_id]
    assert "neo4j" in {one.attributes.get("db.system.name") for one in below}
    linked = wait_for(lambda: collector.named("link skills", command.trace_id))
    assert collector.path(linked[0])[1:3] == ["process skillbus.link", "process skillbus.ingest"]


def test_a_query_is_one_trace_from_the_gateway_to_the_servers(
    distributed: Distributed, client: httpx.Client, collector: Collector
) -> None:
    headers = {"Prefer": "wait=60", "traceparent": TRACEPARENT}
    answer = client.post("/v1/queries", json={"task": TASK}, headers=headers)
    assert answer.json()["bundle"]["skills"][0]["skill_id"] == "crafts:bicycle-repair"
    retrieve = collector.find("query retrieve", TRACE)
    assert collector.path(retrieve) == [
        "query retrieve",
        "process skillbus.query",
        "record skillbus.query.asked.v1",
        "POST /v1/queries",
    ]
    # The reconciler, which runs each second here, may have sent it once more.
    task = collector.named("process skillbus.query", TRACE)[0]
    assert task.attributes["messaging.system"] == "redis"
    request = collector.find("POST /v1/queries", TRACE)
    calls = [one for one in collector if one.trace_id == TRACE and one.kind == "client"]
    assert {one.attributes["db.system.name"] for one in calls} == DATABASES
    assert all(one.attributes["server.address"] == "127.0.0.1" for one in calls)
    assert all(one.attributes["db.operation.name"] for one in calls)
    search = [one for one in calls if one.attributes["db.system.name"] == "elasticsearch"]
    # 404: there is no index of reviews before the first review.
    assert {one.attributes["db.response.status_code"] for one in search} <= {"200", "404"}
    instances = {one.resource["service.instance.id"] for one in collector if one.trace_id == TRACE}
    assert len(instances) == 2, "the gateway and a child of the worker"
    polls = [one for one in calls if one.parent_id == request.span_id]
    assert len(polls) < 10, "waiting for the answer is no part of the trace"
    lines = [line for line in distributed.log("query") if line["event"] == "task done"]
    assert TRACE in {line["trace_id"] for line in lines}


def test_traces_outlast_a_worker_that_stops_and_a_broker_that_loses_a_query(
    distributed: Distributed, client: httpx.Client, collector: Collector
) -> None:
    """A worker exports its last spans, and the journal has the trace of a query."""
    distributed.stop("query")
    distributed.start("query", SKILLBUS_TRACING__EXPORT_MILLISECONDS="600000")
    headers = {"Prefer": "wait=60", "traceparent": f"00-{LAST_TRACE}-{PARENT}-01"}
    assert client.post("/v1/queries", json={"task": TASK}, headers=headers).status_code == 200
    assert not collector.named("process skillbus.query", LAST_TRACE)
    distributed.stop("query")
    wait_for(lambda: collector.named("process skillbus.query", LAST_TRACE))

    headers = {"traceparent": f"00-{LOST_TRACE}-{PARENT}-01"}
    answer = client.post("/v1/queries", json={"task": TASK}, headers=headers)
    recorded = collector.find("record skillbus.query.asked.v1", LOST_TRACE)
    with distributed.redis() as redis:
        redis.delete("skillbus.query")
    distributed.start("query")
    wait_for(lambda: client.get(answer.headers["location"]).json()["state"] == "done", 120)
    task = wait_for(lambda: collector.named("process skillbus.query", LOST_TRACE))[0]
    assert task.parent_id == recorded.span_id


def test_the_task_of_a_dead_worker_is_sent_again_under_the_span_that_sent_it(
    distributed: Distributed, collector: Collector
) -> None:
    """Not under that of the dead worker, which was never exported."""
    distributed.stop(REST)  # its reconciler would take the task over
    with tracing(collector.settings()), distributed.backend() as backend:
        with trace("process skillbus.query", "consumer", [TraceContext(TRACEPARENT)]):
            # This process has no heartbeat, as one that has died.
            backend.coordinator.start_task(QUERY.name, "the task", ["a query"])
        (stalled,) = backend.coordinator.get_stalled_tasks()
    distributed.start(REST)
    assert (stalled.task, stalled.ids) == (QUERY.name, ("a query",))
    assert (stalled.trace_id, stalled.context) == (TRACE, TraceContext(TRACEPARENT))


def test_a_message_its_query_and_its_reply_are_one_trace(
    distributed: Distributed, collector: Collector, run_servers: RunServers, tmp_path: Path
) -> None:
    outside = OnRedis(run_servers)
    outside.clear()
    name = reply_name(tmp_path)
    file = outside.settings["broker_password_file"]
    consuming = distributed.skillbus.with_environment(
        SKILLBUS_SUBMISSIONS__BROKER=outside.settings["broker"],
        **({"SKILLBUS_SUBMISSIONS__BROKER_PASSWORD_FILE": str(file)} if file else {}),
    )
    process = consuming.start("consume")
    try:
        outside.put(
            json.dumps(query(TASK, replyto=name, traceparent=f"00-{MESSAGE_TRACE}-{PARENT}-01"))
        )
        (reply,) = outside.replies(name, 1)
    finally:
        process.send(signal.SIGTERM)
        process.wait()
        outside.client.delete(STREAM)
        outside.clear()
    recorded = collector.find("record skillbus.query.asked.v1", MESSAGE_TRACE)
    sent = collector.find("send skillbus.query.answered.v1", MESSAGE_TRACE)
    assert (recorded.parent_id, recorded.links) == (PARENT, [])
    assert sent.parent_id == recorded.span_id
    assert sent.attributes["messaging.destination.name"] == name
    assert reply.event["traceparent"] == sent.context.traceparent
    assert collector.path(collector.find("query retrieve", MESSAGE_TRACE))[-1] == recorded.name


def test_no_span_quotes_a_task(collector: Collector) -> None:
    assert not any(TASK.encode() in body for body in collector.bodies)
