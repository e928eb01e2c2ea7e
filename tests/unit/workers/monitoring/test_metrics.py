"""Figures: what a scrape holds, and that the dashboard speaks of nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tasks.policies import REFINE
from workers.monitoring.metric_specs import DEPLOYMENT_METRICS, MODEL_METRICS, PROCESS_METRICS
from workers.monitoring.metrics import ProcessMetrics, _remove_stale_folders
from workers.monitoring.status_gauges import StatusGauges, gauge_values
from workers.processes.workloads import WORKLOADS

DASHBOARDS = Path(__file__).resolve().parents[4] / "deploy" / "dashboards"
EVERY_METRIC = (*PROCESS_METRICS, *MODEL_METRICS, *DEPLOYMENT_METRICS)

REPORT: dict[str, Any] = {
    "servers": [
        {"server": "redis", "up": True, "seconds": 0.01},
        {"server": "neo4j", "up": False, "seconds": None},
    ],
    "queues": [{"queue": "skillbus.plan", "waiting": 3}],
    "workers": [
        {"queues": ["skillbus.plan", "skillbus.ingest"], "running": [{"task": "skillbus.plan"}]},
        {"queues": ["skillbus.plan"], "running": []},
    ],
    "open_events": 4,
    "open_queries": 0,
    "oldest_event_seconds": 1.5,
    "oldest_query_seconds": 0.0,
    "dead_letters": 2,
    "problem": "no room",
    "skills": {"published": 9, "failed": 1, "removed": 0, "waiting": 2},
    "reviews": {"withheld": 2, "updates": 1, "released": 0, "confirmed": 0, "rejected": 0},
    "with_vectors": 7,
    "embedded": 5,
    "unlinked": 1,
    "links": 20,
    "usage_days_behind": 3,
    "sources": [{"source_id": "crafts"}],
    "oldest_waiting_seconds": 7.0,
    "language_model": {
        "refinement": {"stages": {"roles": {"refined": 5, "waiting": 4, "invalid": 1}}}
    },
    "submissions": [{"connected": True, "waiting": 4}, {"connected": False, "waiting": None}],
}


def samples(figures: ProcessMetrics) -> dict[str, list[Any]]:
    """What a scrape returns, by the name of the sample."""
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(figures.render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


@pytest.fixture
def figures() -> ProcessMetrics:
    """Figures after one of everything."""
    made = ProcessMetrics(lambda: REPORT)
    recorder = made.recorder
    recorder.record_task("skillbus.plan", "done", 0.2)
    recorder.record_retry("skillbus.plan")
    recorder.record_stage("skillbus.query", "retrieve", 0.01)
    recorder.record_query("hit", degraded=True)
    recorder.record_answers("query", 2)
    recorder.record_outcome("helped", "verifier")
    recorder.record_dead_letter("")
    recorder.record_encoding(3, 40, 0.1)
    recorder.record_submission("refused")
    recorder.record_spans("dropped", 3)
    recorder.record_model_calls("select", 2, 500, 40, 1.5)
    recorder.record_stored_answer("select")
    recorder.record_model_failure("roles", "invalid")
    return made


def test_a_scrape_holds_every_series_and_no_other(figures: ProcessMetrics) -> None:
    found = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for name in samples(figures)
        if not name.endswith("_created")
    }
    assert found == {series.name for series in EVERY_METRIC}


def test_without_a_language_model_nothing_is_said_of_one() -> None:
    assert not [name for name in samples(ProcessMetrics(lambda: REPORT)) if "model" in name]
    assert b"skillbus_model" not in ProcessMetrics(lambda: REPORT).render()


def test_labels_are_those_of_the_reference(figures: ProcessMetrics) -> None:
    labels = {series.name: set(series.labels) for series in EVERY_METRIC}
    for name, found in samples(figures).items():
        if name in labels:
            assert {frozenset(sample.labels) for sample in found} == {frozenset(labels[name])}


def test_what_tasks_tell_is_counted(figures: ProcessMetrics) -> None:
    found = samples(figures)
    (count,) = found["skillbus_task_seconds_count"]
    assert (count.labels, count.value) == ({"task": "skillbus.plan", "outcome": "done"}, 1)
    (answered,) = found["skillbus_queries_total"]
    assert (answered.labels, answered.value) == ({"answer": "hit", "degraded": "yes"}, 1)
    (recorded,), (outcome,) = (
        found["skillbus_answers_recorded_total"],
        found["skillbus_outcomes_total"],
    )
    assert (recorded.labels, recorded.value) == ({"by": "query"}, 2)
    assert (outcome.labels, outcome.value) == ({"outcome": "helped", "by": "verifier"}, 1)
    assert found["skillbus_dead_letters_written_total"][0].labels == {"task": "none"}
    assert found["skillbus_encoded_tokens_total"][0].value == 40


def test_gauges_say_what_the_report_says() -> None:
    values = gauge_values(REPORT)
    assert values["skillbus_server_up"] == {("redis",): 1, ("neo4j",): 0}
    assert values["skillbus_server_seconds"] == {("redis",): 0.01}
    assert values["skillbus_workers"][("skillbus.plan",)] == 2
    assert values["skillbus_workers"][("skillbus.query",)] == 0
    assert values["skillbus_running_tasks"][("skillbus.plan",)] == 1
    assert values["skillbus_unembedded_skills"] == {(): 4}
    assert values["skillbus_skills_without_vectors"] == {(): 2}
    assert values["skillbus_unrefined_skills"] == {("roles",): 4}
    assert values["skillbus_stalled"] == {(): 1}
    assert values["skillbus_index_lag_seconds"] == {(): 7}
    assert values["skillbus_consumers"] == {(): 1}
    assert values["skillbus_usage_days_behind"] == {(): 3}
    assert values["skillbus_submissions_waiting"] == {(): 4}


def test_an_unknown_value_has_no_gauge() -> None:
    away = {**dict.fromkeys(REPORT), "servers": [{"server": "redis", "up": False, "seconds": None}]}
    assert gauge_values(away) == {"skillbus_server_up": {("redis",): 0}}
    assert gauge_values({**away, "problem": ""}) == gauge_values(away)
    assert gauge_values({"open_events": 0, "problem": ""})["skillbus_stalled"] == {(): 0}


def test_a_report_serves_scrapes_for_a_while() -> None:
    asked = []

    def report() -> dict[str, Any]:
        asked.append(1)
        return REPORT

    gauges = StatusGauges(report, cache_seconds=60)
    for _ in range(3):
        assert [family.name for family in gauges.collect()] == [
            series.name for series in DEPLOYMENT_METRICS
        ]
    assert len(asked) == 1
    eager = StatusGauges(report, cache_seconds=0)
    list(eager.collect())
    list(eager.collect())
    assert len(asked) == 3


def test_what_a_killed_worker_left_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, used = (tmp_path / f"skillbus-metrics-{pid}-x" for pid in (ended.pid, os.getpid()))
    for folder in (left, used):
        folder.mkdir()
        (folder / "counter_1.db").touch()
    _remove_stale_folders()
    assert [path.name for path in tmp_path.iterdir()] == [used.name]


# -- the dashboard
def queries() -> Iterator[str]:
    dashboard = json.loads((DASHBOARDS / "skillbus.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DASHBOARDS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_the_dashboard_has_its_rows_and_every_panel_a_place() -> None:
    dashboard = json.loads((DASHBOARDS / "skillbus.json").read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == ["Queries", "Ingest", "Queues", "Library", "Errors", "Language model", "Usage"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = set()
    for panel in panels:
        assert panel["type"] == "row" or panel["targets"]
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in places, f"{panel['title']} covers another panel"
                places.add((x, y))


def test_the_dashboard_asks_only_for_what_a_scrape_returns(figures: ProcessMetrics) -> None:
    found = samples(figures).keys()
    asked = set().union(*(check_query(query, found) for query in queries()))
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    assert shown == {series.name for series in EVERY_METRIC}, "every series has a panel"


def check_query(query: str, found: Collection[str]) -> set[str]:
    """The metrics that a query names, which are among those found and have its labels."""
    names = set(re.findall(r"\b(skillbus_\w+)", query))
    assert names, query
    assert names <= set(found), query
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
    labels = {label for one in EVERY_METRIC if one.name in bases for label in one.labels}
    used = set(re.findall(r"(\w+)(?:=~?|!=)\"", query))
    for by in re.findall(r"by \(([^)]*)\)", query):
        used |= {one.strip() for one in by.split(",")}
    assert used <= {*labels, "le"}, query
    return names


def test_alert_rules_name_what_a_scrape_returns(figures: ProcessMetrics) -> None:
    found = samples(figures).keys()
    for rule in alerts():
        if rule["alert"] != "SkillbusTargetDown":
            check_query(rule["expr"], found)
        labels = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        assert all(one == "instance" or f"by ({one})" in rule["expr"] for one in labels), rule


def test_queues_that_may_be_without_a_worker_raise_no_alert() -> None:
    (rule,) = (one for one in alerts() if "skillbus_workers" in one["expr"])
    left_out = re.findall(r'queue!="([^"]+)"', rule["expr"])
    assert left_out == [REFINE.queue]


def test_the_example_of_a_scrape_is_one() -> None:
    config = yaml.safe_load((DASHBOARDS / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "skillbus"
    assert config["rule_files"] == ["alerts.yml"]
    assert any('job="skillbus"' in one["expr"] for one in alerts())
    assert len(job["static_configs"][0]["targets"]) == len(WORKLOADS) + 1
