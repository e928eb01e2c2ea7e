"""Traces of `skillbus serve`: from a request, a call of a tool or a command to what it led to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from deploy.stack.ports import free_port
from tests.support.program.program import ForkServer, Process, Skillbus, wait_for
from tests.support.samples.library import write_skill, write_topics
from tests.support.servers.collector import PARENT, TRACE, TRACEPARENT, Collector

TASK = "fire stoneware in an electric kiln"
WAIT = {"Prefer": "wait=60"}
STAGES = ["understand", "encode", "retrieve", "score", "rerank", "diffuse", "choose", "bundle"]
OTHER = "0af7651916cd43dd8448eb211c80319c"
TOOL_TRACE = "1af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as opened:
        yield opened


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def traced(
    fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory, collector: Collector
) -> Skillbus:
    """A home whose processes are traced, with ten skills that were synced before."""
    base = tmp_path_factory.mktemp("traced")
    skillbus = Skillbus(fork_server, base / "home", **collector.environment)
    skillbus("sync", str(write_topics(base / "crafts")))
    return skillbus


@pytest.fixture(scope="module")
def served(traced: Skillbus, port: int) -> Iterator[Process]:
    quiet = traced.with_environment(SKILLBUS_LOG_LEVEL="info")
    with quiet.serving("--listen", f"127.0.0.1:{port}") as process:
        yield process


@pytest.fixture(scope="module")
def client(served: Process, port: int) -> Iterator[httpx.Client]:
    with httpx.Client(timeout=120, base_url=f"http://127.0.0.1:{port}") as opened:
        yield opened


def _lines(process: Process, event: str) -> list[dict[str, Any]]:
    """Log lines of an event so far."""
    text = process.text("err")
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def test_a_sync_is_one_trace_from_the_command_to_the_links(
    traced: Skillbus, collector: Collector
) -> None:
    command = collector.find("skillbus sync")
    trace = command.trace_id
    assert (command.parent_id, command.kind) == ("", "internal")
    for stage in ("ingest read", "ingest index", "ingest publish"):
        assert collector.path(collector.named(stage, trace)[0]) == [
            stage,
            "process skillbus.ingest",
            "plan events",
            "process skillbus.plan",
            "record skillbus.source.changed.v1",
            "skillbus sync",
        ]
    prepared = collector.named("ingest prepare", trace)[0]
    assert collector.path(prepared)[:2] == ["ingest prepare", "ingest read"]
    assert collector.named("link skills", trace)
    assert collector.named("process skillbus.embed_sections", trace)
    embeddings = [one for one in collector if one.name.startswith("embeddings ")]
    assert {one.trace_id for one in embeddings} == {trace}
    assert embeddings[0].attributes["gen_ai.operation.name"] == "embeddings"
    tasks = ["process skillbus.embed_skills", "process skillbus.ingest"]
    embedded = collector.named("embed_skills embed", trace)[0]
    assert collector.path(embedded)[1:3] == tasks
    assert embedded.span_id in {one.parent_id for one in embeddings}


def test_a_query_over_http_continues_the_trace_of_its_caller(
    client: httpx.Client, collector: Collector, served: Process
) -> None:
    headers = {**WAIT, "traceparent": TRACEPARENT, "tracestate": "vendor=1"}
    answer = client.post("/v1/queries", json={"task": TASK}, headers=headers)
    assert answer.status_code == 200, answer.text
    query_id = answer.json()["id"]
    request = collector.find("POST /v1/queries", TRACE)
    assert (request.parent_id, request.kind, request.error) == (PARENT, "server", None)
    assert request.attributes["http.route"] == "/v1/queries"
    assert request.attributes["http.response.status_code"] == 200
    recorded = collector.find("record skillbus.query.asked.v1", TRACE)
    assert recorded.attributes["skillbus.job"] == query_id
    task = collector.find("process skillbus.query", TRACE)
    assert (task.kind, task.error) == ("consumer", None)
    assert task.attributes["messaging.system"] == "memory"
    assert task.attributes["skillbus.queue.seconds"] >= 0
    for stage in STAGES:
        assert collector.path(collector.find(f"query {stage}", TRACE)) == [
            f"query {stage}",
            "process skillbus.query",
            "record skillbus.query.asked.v1",
            "POST /v1/queries",
        ]
    assert not any(one.links for one in collector if one.trace_id == TRACE)
    (done,) = wait_for(
        lambda: [line for line in _lines(served, "task done") if line.get("trace_id") == TRACE]
    )
    assert done["task"] == "skillbus.query"
    (line,) = [one for one in _lines(served, "request") if one["trace_id"] == TRACE]
    assert line["path"] == "/v1/queries"


def test_without_a_parent_the_request_id_is_the_id_of_the_trace(
    client: httpx.Client, collector: Collector
) -> None:
    answer = client.get("/v1/skills?limit=1")
    request_id = answer.headers["x-request-id"]
    assert collector.find("GET /v1/skills", request_id).parent_id == ""
    named = client.get("/v1/skills?limit=1", headers={"X-Request-Id": "mine"})
    assert named.headers["x-request-id"] == "mine"


@pytest.mark.parametrize("parent", ["nonsense", f"ff-{TRACE}-{PARENT}-01", TRACEPARENT.upper()])
def test_a_malformed_parent_is_ignored(
    client: httpx.Client, collector: Collector, parent: str
) -> None:
    answer = client.get("/v1/skills?limit=1", headers={"traceparent": parent})
    assert answer.status_code == 200
    request = collector.find("GET /v1/skills", answer.headers["x-request-id"])
    assert (request.parent_id, request.trace_id == TRACE) == ("", False)


def test_probes_are_no_spans_and_failures_are(client: httpx.Client, collector: Collector) -> None:
    assert client.get("/healthz").status_code == 200
    assert client.get("/v1/queries/none", headers={"X-Request-Id": "x"}).status_code == 404
    request = collector.find("GET /v1/queries/{query_id}")
    assert request.attributes["http.response.status_code"] == 404
    assert request.error is None, "a mistake of the caller"
    assert not collector.named("GET /healthz")


def test_an_event_keeps_its_own_trace(
    traced: Skillbus, served: Process, collector: Collector
) -> None:
    """The extension of CloudEvents says where the event comes from; the request is linked."""
    event = {
        "specversion": "1.0",
        "id": "one",
        "source": "/elsewhere",
        "type": "skillbus.query.asked.v1",
        "data": {"task": TASK},
        "traceparent": f"00-{OTHER}-{PARENT}-01",
    }
    with traced.client() as own:
        assert own.post("/v1/events", json=event).status_code == 202
    recorded = collector.find("record skillbus.query.asked.v1", OTHER)
    request = collector.find("POST /v1/events")
    assert recorded.parent_id == PARENT
    assert recorded.links == [(request.trace_id, request.span_id)]
    collector.find("process skillbus.query", OTHER)


def test_a_call_of_a_tool_is_traced(served: Process, port: int, collector: Collector) -> None:
    async def call() -> Any:
        async with Client(streamable_http_client(f"http://127.0.0.1:{port}/mcp")) as opened:
            meta: Any = {"traceparent": f"00-{TOOL_TRACE}-{PARENT}-01"}
            return await opened.call_tool("find_skills", {"task": TASK}, meta=meta)

    assert not anyio.run(call).is_error
    tool = collector.find("tools/call find_skills", TOOL_TRACE)
    assert (tool.parent_id, tool.kind) == (PARENT, "server")
    assert tool.attributes["gen_ai.tool.name"] == "find_skills"
    ((trace, span),) = tool.links
    request = collector.get(span)
    assert (request.name, request.trace_id) == ("POST /mcp", trace)
    stage = collector.find("query retrieve", TOOL_TRACE)
    assert collector.path(stage) == [
        "query retrieve",
        "process skillbus.query",
        "record skillbus.query.asked.v1",
        "tools/call find_skills",
    ]


def test_a_command_and_the_serve_it_asks_are_one_trace(
    traced: Skillbus, served: Process, collector: Collector
) -> None:
    trace = "2af7651916cd43dd8448eb211c80319c"
    calling = traced.with_environment(TRACEPARENT=f"00-{trace}-{PARENT}-01")
    calling("query", TASK, "--format", "json")
    command = collector.find("skillbus query", trace)
    assert command.parent_id == PARENT
    assert collector.path(collector.find("query retrieve", trace)) == [
        "query retrieve",
        "process skillbus.query",
        "record skillbus.query.asked.v1",
        "POST /v1/answers",
        "skillbus query",
    ]
    pids = {one.resource["service.instance.id"] for one in collector if one.trace_id == trace}
    assert len(pids) == 2


def test_a_command_is_one_span(traced: Skillbus, collector: Collector) -> None:
    query_id = traced("query", TASK, "--format", "json").data["query_id"]
    traced("outcomes", "forget", "--query", query_id)
    assert collector.find("skillbus outcomes forget").parent_id == ""


def test_a_change_that_the_watcher_sees_begins_a_trace(
    traced: Skillbus, served: Process, collector: Collector
) -> None:
    synced = collector.find("skillbus sync").trace_id
    write_skill(traced.home.parent / "crafts", "inlay", "# Inlay\n\nCut the walnut first.\n")
    published = wait_for(
        lambda: [one for one in collector.named("ingest publish") if one.trace_id != synced]
    )
    assert collector.path(published[0])[-1] == "record skillbus.source.changed.v1"


def test_no_span_quotes_a_task_or_a_skill(
    client: httpx.Client, collector: Collector, traced: Skillbus
) -> None:
    text = (traced.home.parent / "crafts" / "kiln-firing" / "SKILL.md").read_text()
    lines = [line.strip("-# ") for line in text.splitlines() if len(line) > 25]
    assert lines
    sent = b"\n".join(collector.bodies)
    for quoted in (TASK, *lines):
        assert quoted.encode() not in sent, quoted


def test_what_was_exported_is_a_metric(client: httpx.Client) -> None:
    wait_for(lambda: 'skillbus_spans_total{outcome="exported"}' in client.get("/metrics").text)


def test_a_collector_that_is_down_costs_no_answer(traced: Skillbus) -> None:
    lost = traced.with_environment(
        SKILLBUS_TRACING__ENDPOINT="http://127.0.0.1:9", SKILLBUS_TRACING__STOP_SECONDS="0"
    )
    assert lost.chosen(TASK)[0] == "crafts:kiln-firing"


def test_an_exit_code_is_no_error_of_a_command(
    traced: Skillbus, served: Process, collector: Collector
) -> None:
    trace = "6af7651916cd43dd8448eb211c80319c"
    calling = traced.with_environment(TRACEPARENT=f"00-{trace}-{PARENT}-01")
    calling("query", "zzz qqq", code=3)
    command = collector.find("skillbus query", trace)
    assert (command.attributes["process.exit.code"], command.error) == (3, None)
    calling("skills", "show", "crafts:none", code=2)
    assert collector.find("skillbus skills show", trace).error == "NotFoundError"
