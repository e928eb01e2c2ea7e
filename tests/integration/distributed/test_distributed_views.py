"""What an operator sees of a distributed deployment: traces, metrics, status, doctor, letters."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.stack.ports import free_port
from skills.events import SourceChanged, new_event
from tasks.journal.protocol import DeadLetter, new_dead_letter_id
from tasks.policies import LINK, PLAN, QUERY
from tasks.send import send_task
from tests.support.program.program import wait_for
from tests.support.program.secrecy import made_up
from tests.support.samples.catalog import run_cypher
from tests.support.samples.library import write_topics
from tests.support.servers.distributed import Deployments, Distributed, deployments
from tests.support.servers.servers import RunServers, ServerControls
from workers.monitoring.metric_specs import DEPLOYMENT_METRICS, PROCESS_METRICS

__all__ = ["deployments"]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
WORKLOADS = (
    "query", "ingest", "fetch", "link", "outcomes", "embed_skills", "embed_sections", "refine",
)  # fmt: skip
PATIENCE = 5.0
"""Of commands, with servers that are frozen."""


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    """A metrics port for each worker."""
    chosen: dict[str, int] = {}
    for name in WORKLOADS:
        chosen[name] = free_port(set(chosen.values()))
    return chosen


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_topics(tmp_path_factory.mktemp("views") / "crafts")


@pytest.fixture(scope="module")
def running(deployments: Deployments, ports: dict[str, int], root: Path) -> Iterator[Distributed]:
    """All workers, each with its port, and ten skills that an event of another producer named."""
    made = deployments()
    for name in WORKLOADS:
        made.launch(name, SKILLBUS_WORKERS__METRICS_PORT=str(ports[name]))
    made.wait_ready()
    with made.backend() as backend:
        event = new_event(SourceChanged(source_id="crafts", root=str(root)), "skillbus/x", TRACE)
        backend.accept(event)
    made.wait_done(120)
    yield made
    made.stop()


def ask(port: int, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60)


def scraped(port: int) -> dict[str, dict[tuple[str, ...], float]]:
    """Values of a scrape by sample name and labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(ask(port, "/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def when_all_are_up(port: int) -> dict[str, dict[tuple[str, ...], float]] | None:
    """A scrape, where every server answered in time; on a busy machine not each does."""
    found = scraped(port)
    return found if set(found["skillbus_server_up"].values()) == {1.0} else None


def wait_traced(running: Distributed, workload: str, tasks: set[str]) -> list[dict[str, Any]]:
    """Wait for the log lines of `tasks` in the trace, and return all of the workload's.

    What a task did can be read before its worker has logged that it is done. The reconciler may be
    the first to see what is to be embedded: tasks that embed count outside the trace too.
    """

    def list_done() -> list[dict[str, Any]]:
        return [line for line in running.log(workload) if line["event"] == "task done"]

    def are_traced() -> bool:
        is_embedding = workload.startswith("embed")
        done = list_done()
        return {ln["task"] for ln in done if is_embedding or ln["trace_id"] == TRACE} == tasks

    wait_for(are_traced)
    return list_done()


def test_one_trace_from_event_to_links(running: Distributed) -> None:
    for workload, tasks in (
        ("ingest", {"skillbus.plan", "skillbus.ingest"}),
        ("link", {"skillbus.link"}),
        ("embed_skills", {"skillbus.embed_skills"}),
        ("embed_sections", {"skillbus.embed_sections"}),
    ):
        assert all(line["seconds"] >= 0 for line in wait_traced(running, workload, tasks))
    carried = [line for line in running.log("ingest") if line["event"] == "event carried out"]
    assert [(line["trace_id"], line["changed"]) for line in carried] == [(TRACE, 10)]


def test_a_querys_id_is_its_trace(running: Distributed) -> None:
    bundle = running.skillbus("query", "fire a kiln", "--format", "json").data

    def lines() -> list[dict[str, Any]]:
        found = running.log("query")
        traced = [line for line in found if line.get("trace_id") == bundle["query_id"]]
        return traced if any(line["event"] == "task done" for line in traced) else []

    found = wait_for(lines)
    # On a busy machine a task may be sent again before it ends.
    done = [line for line in found if line["event"] == "task done"]
    assert {line["task"] for line in done} == {QUERY.name}
    answers = {(line["status"], line["skills"]) for line in done if "status" in line}
    assert ("SKILL_HIT", len(bundle["skills"])) in answers
    # There a server may also not answer in time, which the bundle says and one line more.
    late = any("did not answer" in reason for reason in bundle["degraded"])
    warning = "query answered while a server did not answer"
    assert [each["event"] for each in found if each not in done] == [warning] * late
    assert "fire a kiln" not in json.dumps(found), "texts stay out of logs"


def test_work_taken_over_or_sent_again_keeps_its_trace(running: Distributed, root: Path) -> None:
    running.stop("ingest")
    write_topics(root)
    (root / "kiln-firing" / "SKILL.md").write_text(
        "---\nname: kiln-firing\ndescription: Fire a kiln slowly\n---\n\nHeat it up.\n", "utf-8"
    )
    other = TRACE[::-1]
    with running.backend() as backend:
        changed = SourceChanged(source_id="crafts", root=str(root), paths=("kiln-firing",))
        backend.accept(new_event(changed, "skillbus/x", other))
        with running.redis() as client:
            client.delete(PLAN.queue)  # the broker forgot
    running.launch("ingest", SKILLBUS_WORKERS__RECONCILE_SECONDS="1")
    with running.backend() as backend:
        backend.send_maintenance()
        wait_for(lambda: not backend.journal.count_open_jobs("event"), 60)
    running.wait_done()
    done = [line for line in running.log("ingest") if line["event"] == "task done"]
    assert other in {line["trace_id"] for line in done if line["task"] == "skillbus.ingest"}


def check_logs(running: Distributed) -> None:
    """Every line that a worker logs is a JSON object, from every logger."""
    for worker in running.workers.values():
        for line in worker.process.text("err").splitlines():
            if not line.startswith("worker ready, "):
                assert isinstance(json.loads(line), dict), line


def test_no_password_is_in_any_log(running: Distributed, run_servers: RunServers) -> None:
    files = [run_servers.password_file(name) for name in ("redis", "neo4j")]
    secrets = [file.read_text(encoding="utf-8").strip() for file in files if file is not None]
    assert secrets
    shown = [
        worker.process.text(name) for worker in running.workers.values() for name in ("out", "err")
    ]
    status = running.skillbus("status").out + running.skillbus("config", "show").out
    for text in (*shown, status, running.skillbus.start("doctor").wait().out):
        assert text is not None
        assert not [secret for secret in secrets if secret in text]
    check_logs(running)


def test_figures_of_every_worker(running: Distributed, ports: dict[str, int]) -> None:
    asked = running.skillbus("query", "fire a kiln", "--format", "json").data["query_id"]
    running.skillbus("outcome", asked, "missing")
    known = {series.name for series in (*PROCESS_METRICS, *DEPLOYMENT_METRICS)}
    everything: set[str] = set()
    for name in ("query", "link", "embed_sections", "outcomes"):
        found = wait_for(partial(when_all_are_up, ports[name]))
        everything |= {sample.rpartition("_")[0] for sample in found} | set(found)
        assert found["skillbus_skills"][("published",)] == 10
        assert set(found["skillbus_workers"].values()) == {1.0}
        assert found["skillbus_index_lag_seconds"] == {(): 0.0}
    query = scraped(ports["query"])
    assert (
        query["skillbus_queries_total"][("hit", "no")]
        + query["skillbus_queries_total"].get(("hit", "yes"), 0)
        >= 1
    )
    stages = {stage for task, stage in _by("task", "stage", ports["query"])}
    assert {"understand", "retrieve", "bundle"} <= stages
    assert query["skillbus_encoded_texts_total"][()] >= 1
    elsewhere = {
        "skillbus_task_retries_total",
        "skillbus_dead_letters_written_total",
        "skillbus_unrefined_skills",  # only with a language model
        "skillbus_spans_total",  # only with traces
    }
    of_consumers = {name for name in known if name.startswith("skillbus_submissions_")}
    assert known - elsewhere - of_consumers <= everything


def _by(first: str, second: str, port: int) -> set[tuple[str, str]]:
    return {
        (sample.labels[first], sample.labels[second])
        for family in text_string_to_metric_families(ask(port, "/metrics").text)
        for sample in family.samples
        if sample.name == "skillbus_stage_seconds_count"
    }


def test_a_worker_says_that_it_lives_and_is_ready(
    running: Distributed, ports: dict[str, int]
) -> None:
    assert ask(ports["embed_sections"], "/healthz").status_code == 200
    wait_for(lambda: ask(ports["embed_sections"], "/readyz").status_code == 200)
    assert ask(ports["embed_sections"], "/elsewhere").status_code == 404
    running.workers["embed_sections"].kill_children()
    wait_for(lambda: ask(ports["embed_sections"], "/readyz").status_code == 503)
    wait_for(lambda: ask(ports["embed_sections"], "/readyz").status_code == 200, 60)


def test_a_port_that_is_taken_is_refused(running: Distributed, ports: dict[str, int]) -> None:
    program = running.skillbus
    program.env["SKILLBUS_WORKERS__METRICS_PORT"] = str(ports["embed_sections"])
    assert "choose another port" in program("worker", "--queues", "embed_sections", code=2).err


def test_status_shows_servers_workers_and_queues(running: Distributed) -> None:
    report = running.skillbus("status", "--json").data
    assert {server["server"]: server["up"] for server in report["servers"]} == dict.fromkeys(
        ("broker", "redis", "elasticsearch", "neo4j"), True
    )
    taken = sorted(queue for worker in report["workers"] for queue in worker["queues"])
    assert taken == sorted(queue["queue"] for queue in report["queues"])
    assert report["skills"]["published"] == 10
    assert (report["dead_letters"], report["problem"]) == (0, "")
    assert [source["source_id"] for source in report["sources"]] == ["crafts"]
    shown = running.skillbus("status").out
    assert "skills       10 published" in shown
    assert "queues       plan 0" in shown


def doctored(running: Distributed, code: int, **env: str) -> dict[str, dict[str, str]]:
    program = running.skillbus
    program.env |= env
    return {row["check"]: row for row in program("doctor", "--json", code=code).data}


def test_doctor_finds_nothing_wrong(running: Distributed) -> None:
    rows = doctored(running, 0)
    assert {row["state"] for row in rows.values()} == {"ok"}
    assert {"broker", "redis", "clock", "elasticsearch", "neo4j", "workers", "revisions"} <= set(
        rows
    )


def test_doctor_says_what_would_lose_work(running: Distributed) -> None:
    with running.redis() as client:
        before: Any = client.config_get("maxmemory-policy") | client.config_get("appendonly")
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("appendonly", "no")
        try:
            reported = doctored(running, 1)["redis"]["detail"]
        finally:
            for name, value in before.items():
                client.config_set(name, value)
    assert "maxmemory-policy noeviction" in reported
    assert "appendonly yes" in reported


def test_doctor_tells_wrong_passwords_and_goes_on(running: Distributed, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text(made_up("and-wrong") + "\n", encoding="utf-8")
    rows = doctored(running, 1, SKILLBUS_SERVERS__REDIS_PASSWORD_FILE=str(wrong))
    assert "redis_password_file" in rows["redis"]["detail"]
    assert rows["neo4j"]["state"] == rows["elasticsearch"]["state"] == "ok"
    assert made_up("and-wrong") not in json.dumps(rows)


def test_skills_of_an_older_parser_are_parsed_again(
    running: Distributed, ports: dict[str, int]
) -> None:
    """By the reconciler, or at once by a command."""
    forget = "MATCH (s:Skill) SET s.parser = 0"

    def count_outdated() -> int:
        return int(json.loads(running.skillbus("status", "--json").out)["outdated"])

    run_cypher(running.settings.servers, forget)
    wait_for(lambda: count_outdated() == 0, 60)
    running.stop("link")
    run_cypher(running.settings.servers, forget)
    assert "outdated     10 skills" in running.skillbus("status").out
    report = json.loads(running.skillbus("reindex", "--json").out)
    assert report == {"copied": 0, "old": "", "new": "", "reparsed": 10}
    assert count_outdated() == 0
    assert "already" in running.skillbus("reindex", code=2).err
    running.launch("link", SKILLBUS_WORKERS__METRICS_PORT=str(ports["link"]))
    running.wait_ready()


def test_doctor_misses_workers_and_an_index(running: Distributed) -> None:
    with running.redis() as client:
        hidden = [
            key
            for key in client.scan_iter("skillbus:alive:*")
            if "embed_sections" in str(client.get(key))
        ]
    assert len(hidden) == 1
    running.stop("embed_sections")
    reported = doctored(running, 1)["workers"]["detail"]
    assert "no worker consumes embed_sections" in reported
    assert "--queues embed_sections" in reported
    rows = doctored(running, 1, SKILLBUS_SERVERS__ELASTICSEARCH_PREFIX="none_such")
    assert "no search index" in rows["elasticsearch"]["detail"]


def test_doctor_finds_revisions_that_search_has_lost(running: Distributed) -> None:
    running.stop("link")  # it would have them read again
    with running.index() as index:
        lost = min(index.list_keys())
        index.delete([lost])
        missing = "the search index lacks 1 published revision,"

        def reported() -> str:
            """What is said of the revisions, once the deletion is visible."""
            report = json.loads(running.skillbus.start("doctor", "--json").wait().out)
            [said] = [row["detail"] for row in report if row["check"] == "revisions"]
            return said if missing in said else ""

        assert lost.skill_id in wait_for(reported)


def test_letters_are_retried_over_the_queues(running: Distributed) -> None:
    now = time.time()
    bad = DeadLetter(new_dead_letter_id(now), "", (), "not JSON", 0, "", "{", now)
    good = DeadLetter(new_dead_letter_id(now), LINK.name, (), "broke", 1, TRACE, "", now)
    with running.backend() as backend:
        for letter in (bad, good):
            backend.journal.add_dead_letter(letter)
    assert "2 dead letters" in doctored(running, 1)["dead letters"]["detail"]
    assert "cannot be retried" in running.skillbus("dead", "retry", bad.id, code=2).err
    running.skillbus("dead", "retry", good.id)
    left = running.skillbus("dead", "list", "--json").data
    assert [letter["id"] for letter in left] == [bad.id]
    with running.backend() as backend, running.redis() as client:
        assert client.llen(LINK.queue) == 1, "no worker takes it now"
        client.delete(LINK.queue)
        del backend
    running.skillbus("dead", "discard", "--all")
    assert running.skillbus("dead", "list", "--json").data == []


def test_an_unreadable_message_is_a_letter_and_counted(
    running: Distributed, ports: dict[str, int]
) -> None:
    with running.backend() as backend:
        backend.app.send_task("skillbus.unknown", ([],), queue=QUERY.queue)
        wait_for(lambda: backend.journal.count_dead_letters())
        send_task(backend.app, LINK.name, [])
    found = wait_for(lambda: scraped(ports["query"]).get("skillbus_dead_letters_written_total"))
    assert found == {("none",): 1.0}
    running.skillbus("dead", "discard", "--all")


@pytest.mark.parametrize("name", ["neo4j", "elasticsearch", "redis"])
def test_a_frozen_server_hides_nothing_and_blocks_nothing(
    running: Distributed, ports: dict[str, int], servers: ServerControls, name: str
) -> None:
    port = ports["query"]
    servers[name].freeze()
    try:
        wait_for(lambda: scraped(port)["skillbus_server_up"][(name,)] == 0)
        assert ask(port, "/readyz").status_code == 503
        assert any(name in reason.lower() for reason in ask(port, "/readyz").json()["reasons"])
        assert ask(port, "/healthz").status_code == 200
        program = running.skillbus
        program.env["SKILLBUS_SERVERS__TIMEOUT_SECONDS"] = str(PATIENCE)
        wanted = (
            {"broker", "redis", "elasticsearch", "neo4j"}
            - {name}
            - ({"broker"} if name == "redis" else set())
        )

        def up() -> set[str]:
            report = program("status", "--json").data
            return {server["server"] for server in report["servers"] if server["up"]}

        # On a busy machine the others do not always answer in time either.
        wait_for(lambda: up() == wanted)
        others = {"neo4j", "elasticsearch", "redis"} - {name}

        def others_are_ok() -> bool:
            rows = doctored(running, 1, SKILLBUS_SERVERS__TIMEOUT_SECONDS=str(PATIENCE))
            assert rows[name]["state"] == "failed"
            return {rows[other]["state"] for other in others} == {"ok"}

        wait_for(others_are_ok)
    finally:
        servers[name].thaw()
    with contextlib.suppress(httpx.TransportError):
        wait_for(lambda: scraped(port)["skillbus_server_up"][(name,)] == 1)
    wait_for(lambda: ask(port, "/readyz").status_code == 200)


def test_logs_of_bad_times_are_json_too(running: Distributed) -> None:
    check_logs(running)
