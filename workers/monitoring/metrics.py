"""Figures for Prometheus: what tasks tell, counted here, and how the deployment stands.

Counters and histograms are kept by each process, in files where several make up a worker. Gauges
are asked for when somebody scrapes, since all but a few are of the deployment and not of a process.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.metrics_recorder import QueryOutcome, SubmissionOutcome, TaskOutcome

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

Status = Mapping[str, Any]
"""What `status` shows, as data."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATUS_CACHE_SECONDS = 5.0
"""For so long a report serves another scrape."""

_MULTIPROC_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "skillbus-metrics-"
_TASK_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_STAGE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class MetricSpec(NamedTuple):
    """A metric as the reference describes it. kind: counter, histogram or gauge."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


PROCESS_METRICS = (
    MetricSpec(
        "skillbus_task_seconds",
        "histogram",
        ("task", "outcome"),
        "seconds a task took, its own retries included; outcome: done, stale (overtaken), passing "
        "(failed, and is tried again later), failed",
    ),
    MetricSpec(
        "skillbus_stage_seconds",
        "histogram",
        ("task", "stage"),
        "seconds of a stage of skillbus.query or skillbus.ingest",
    ),
    MetricSpec("skillbus_task_retries_total", "counter", ("task",), "tasks tried again at once"),
    MetricSpec(
        "skillbus_queries_total",
        "counter",
        ("answer", "degraded"),
        "queries answered: hit, no_hit or failed; degraded yes: without what was away or too slow",
    ),
    MetricSpec(
        "skillbus_letters_buried_total",
        "counter",
        ("task",),
        "dead letters written; task none: a message that could not be read",
    ),
    MetricSpec("skillbus_encoded_texts_total", "counter", (), "texts that the encoder read"),
    MetricSpec("skillbus_encoded_tokens_total", "counter", (), "tokens that the encoder read"),
    MetricSpec("skillbus_encoding_seconds_total", "counter", (), "seconds that the encoder took"),
    MetricSpec(
        "skillbus_submissions_total",
        "counter",
        ("outcome",),
        "messages from a queue that were recorded (again, too) or refused, and replies that were "
        "sent (replied) or had no queue (dropped)",
    ),
)

DEPLOYMENT_METRICS = (
    MetricSpec("skillbus_server_up", "gauge", ("server",), "1: the server answers as it should"),
    MetricSpec("skillbus_server_seconds", "gauge", ("server",), "seconds the server took to tell"),
    MetricSpec("skillbus_queue_messages", "gauge", ("queue",), "tasks that wait in a queue"),
    MetricSpec("skillbus_open_jobs", "gauge", ("kind",), "events and queries that have not ended"),
    MetricSpec(
        "skillbus_oldest_job_seconds", "gauge", ("kind",), "age of the oldest open event or query"
    ),
    MetricSpec("skillbus_dead_letters", "gauge", (), "dead letters that wait for an operator"),
    MetricSpec(
        "skillbus_trouble", "gauge", (), "1: work does not go on; `skillbus status` says why"
    ),
    MetricSpec("skillbus_workers", "gauge", ("queue",), "workers alive that take from a queue"),
    MetricSpec("skillbus_running_tasks", "gauge", ("task",), "tasks that run now"),
    MetricSpec(
        "skillbus_skills",
        "gauge",
        ("state",),
        "skills by state: published, failed, removed; waiting ones may count in another state too",
    ),
    MetricSpec(
        "skillbus_index_lag_seconds",
        "gauge",
        (),
        "age of the oldest change that waits for ingest; 0: none waits",
    ),
    MetricSpec("skillbus_unpaged_skills", "gauge", (), "published skills without section vectors"),
    MetricSpec("skillbus_unlinked_skills", "gauge", (), "skills that wait for linking"),
    MetricSpec("skillbus_links", "gauge", (), "links between skills"),
    MetricSpec("skillbus_sources", "gauge", (), "sources"),
    MetricSpec(
        "skillbus_consumers",
        "gauge",
        (),
        "processes that take submissions and have their broker now",
    ),
    MetricSpec(
        "skillbus_submissions_waiting",
        "gauge",
        (),
        "messages in the queue of submissions that no consumer has in hand",
    ),
)


class PrometheusMeasures:
    """MetricsRecorder over Prometheus; cheap enough for every task (some µs a call)."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        """registry: None where files carry the figures to another process."""
        from prometheus_client import Counter, Histogram

        meaning = {spec.name: spec for spec in PROCESS_METRICS}

        def counter(name: str) -> Counter:
            spec = meaning[name]
            return Counter(name, spec.meaning, spec.labels, registry=registry)

        def histogram(name: str, buckets: Sequence[float]) -> Histogram:
            spec = meaning[name]
            return Histogram(name, spec.meaning, spec.labels, registry=registry, buckets=buckets)

        self._tasks = histogram("skillbus_task_seconds", _TASK_SECONDS)
        self._stages = histogram("skillbus_stage_seconds", _STAGE_SECONDS)
        self._retries = counter("skillbus_task_retries_total")
        self._queries = counter("skillbus_queries_total")
        self._letters = counter("skillbus_letters_buried_total")
        self._texts = counter("skillbus_encoded_texts_total")
        self._tokens = counter("skillbus_encoded_tokens_total")
        self._encoding = counter("skillbus_encoding_seconds_total")
        self._submissions = counter("skillbus_submissions_total")

    def record_task(self, task: str, outcome: TaskOutcome, seconds: float) -> None:
        """A task came to an end."""
        self._tasks.labels(task, outcome).observe(seconds)

    def record_retry(self, task: str) -> None:
        """A task is tried again."""
        self._retries.labels(task).inc()

    def record_stage(self, task: str, stage: str, seconds: float) -> None:
        """A stage of a task came to an end."""
        self._stages.labels(task, stage).observe(seconds)

    def record_query(self, answered: QueryOutcome, degraded: bool) -> None:
        """A query was answered."""
        self._queries.labels(answered, "yes" if degraded else "no").inc()

    def record_dead_letter(self, task: str) -> None:
        """A task failed for good, or a message could not be read."""
        self._letters.labels(task or "none").inc()

    def record_encoding(self, texts: int, tokens: int, seconds: float) -> None:
        """The encoder turned texts into vectors."""
        self._texts.inc(texts)
        self._tokens.inc(tokens)
        self._encoding.inc(seconds)

    def record_submission(self, outcome: SubmissionOutcome) -> None:
        """A message from a queue, or a reply to one, was dealt with."""
        self._submissions.labels(outcome).inc()


class StatusGauges:
    """Collects what a report says; one report serves all scrapes of some seconds."""

    def __init__(
        self, report: Callable[[], Status], cache_seconds: float = STATUS_CACHE_SECONDS
    ) -> None:
        self._fetch_status = report
        self._cache_seconds = cache_seconds
        self._lock = threading.Lock()
        self._fetched_at = -cache_seconds
        self._status: Status = {}

    def collect(self) -> Iterator[Metric]:
        """The gauges, for a registry; of what nobody could tell there is none."""
        from prometheus_client.core import GaugeMetricFamily

        values = gauge_values(self.get_status())
        for spec in DEPLOYMENT_METRICS:
            family = GaugeMetricFamily(spec.name, spec.meaning, labels=spec.labels)
            for labels, value in values.get(spec.name, {}).items():
                family.add_metric(labels, value)
            yield family

    def get_status(self) -> Status:
        """The report of now, or of a moment ago."""
        with self._lock:
            if time.monotonic() - self._fetched_at > self._cache_seconds:
                self._status = self._fetch_status()
                self._fetched_at = time.monotonic()
            return self._status


Values = dict[str, dict[tuple[str, ...], float]]


def gauge_values(report: Status) -> Values:
    """The value of each gauge by its labels; what the report leaves out or does not know is left
    out."""
    found: Values = {}

    def put(name: str, value: float | None, *labels: str) -> None:
        if value is not None:
            found.setdefault(f"skillbus_{name}", {})[labels] = float(value)

    for server in report.get("servers") or ():
        put("server_up", server["up"], server["server"])
        put("server_seconds", server["seconds"], server["server"])
    for queue in report.get("queues") or ():
        put("queue_messages", queue["waiting"], queue["queue"])
    for kind, many in (("event", "events"), ("query", "queries")):
        put("open_jobs", report.get(f"open_{many}"), kind)
        put("oldest_job_seconds", report.get(f"oldest_{kind}_seconds"), kind)
    put("dead_letters", report.get("dead_letters"))
    put("trouble", bool(report.get("trouble")))
    for state, count in (report.get("skills") or {}).items():
        put("skills", count, state)
    if report.get("skills"):
        put("unpaged_skills", report["skills"]["published"] - report["paged"])
    put("index_lag_seconds", report.get("oldest_waiting_seconds"))
    put("unlinked_skills", report.get("unlinked"))
    put("links", report.get("links"))
    if report.get("sources") is not None:
        put("sources", len(report["sources"]))
    _put_workers(report.get("workers"), put)
    consumers = report.get("submissions")
    if consumers is not None:
        put("consumers", sum(one["connected"] for one in consumers))
        waiting = [one["waiting"] for one in consumers if one["waiting"] is not None]
        put("submissions_waiting", max(waiting, default=None))
    return found


def _put_workers(workers: Sequence[Mapping[str, Any]] | None, put: Callable[..., None]) -> None:
    from tasks.policies import POLICIES

    if workers is None:
        return
    running = [task["task"] for worker in workers for task in worker["running"]]
    for policy in POLICIES.values():
        taking = sum(policy.queue in worker["queues"] for worker in workers)
        put("workers", taking, policy.queue)
        put("running_tasks", running.count(policy.name), policy.name)


class ProcessMetrics:
    """Figures of one process that runs tasks in threads."""

    def __init__(self, report: Callable[[], Status] | None = None) -> None:
        from prometheus_client.registry import CollectorRegistry

        self._registry = CollectorRegistry()
        self.measures = PrometheusMeasures(self._registry)
        if report is not None:
            self.add_gauges(report)

    def add_gauges(self, report: Callable[[], Status]) -> None:
        """Ask for gauges, too, when somebody scrapes."""
        self._registry.register(StatusGauges(report))

    def render(self) -> bytes:
        """What a scrape returns."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)


class MultiprocessMetrics:
    """Figures of a worker's parent and children, in files of a folder that they share.

    Made in the parent before it forks. Children tell there, too, that they are ready for tasks.
    """

    def __init__(self) -> None:
        _remove_stale_folders()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        os.environ[_MULTIPROC_VARIABLE] = str(self._folder)
        # It counts in files only if it finds the variable when it is imported.
        from prometheus_client import values

        make_value: Any = values.MultiProcessValue  # it carries no annotations
        values.ValueClass = make_value()
        self.measures = PrometheusMeasures(None)

    def mark_child_ready(self) -> None:
        """This child has its services."""
        (self._folder / f"ready-{os.getpid()}").touch()

    def count_ready_children(self) -> int:
        """How many children that live have told so."""
        pids = (int(path.name.removeprefix("ready-")) for path in self._folder.glob("ready-*"))
        return sum(_is_running(pid) for pid in pids)

    def render(self, gauges: StatusGauges) -> bytes:
        """What a scrape returns."""
        from prometheus_client import generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector
        from prometheus_client.registry import CollectorRegistry

        registry = CollectorRegistry()
        collector: Any = MultiProcessCollector  # it carries no annotations
        collector(registry, str(self._folder))
        registry.register(gauges)
        return generate_latest(registry)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.environ.pop(_MULTIPROC_VARIABLE, None)


def _remove_stale_folders() -> None:
    """Remove what workers that were killed have left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not _is_running(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return state != "Z"
