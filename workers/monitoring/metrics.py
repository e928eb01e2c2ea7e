"""Recording and rendering of Prometheus metrics; `metric_specs` lists them.

Counters and histograms are kept by each process, in shared files if a worker has several. Gauges
describe the deployment and are read from its status at each scrape.

prometheus_client is imported in functions, because it decides at import whether values are kept in
files, from a variable that `MultiprocessMetrics` sets.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from tasks.metrics_recorder import (
    AnswerRecorder,
    MetricsRecorder,
    ModelFailure,
    QueryOutcome,
    SpanOutcome,
    SubmissionOutcome,
    TaskOutcome,
)
from tasks.services import Lazy
from workers.monitoring.metric_specs import MODEL_METRICS, PROCESS_METRICS, MetricSpec
from workers.monitoring.status_gauges import Status, StatusGauges

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_MULTIPROC_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_FOLDER_PREFIX = "skillbus-metrics-"
_TASK_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_STAGE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the buckets, in seconds."""


class PrometheusRecorder(MetricsRecorder):
    """Records metrics in Prometheus counters and histograms; a call takes a few µs."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        """Create the metrics. registry: None in multiprocess mode, where values are in files."""
        self._metrics = {spec.name: _make_metric(spec, registry) for spec in PROCESS_METRICS}
        self._model_metrics = Lazy(
            lambda: {spec.name: _make_metric(spec, registry) for spec in MODEL_METRICS}
        )

    def _observe(self, name: str, seconds: float, *labels: str) -> None:
        self._metrics[name].labels(*labels).observe(seconds)

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        metric = self._metrics[name]
        (metric.labels(*labels) if labels else metric).inc(by)

    def _count_model(self, name: str, *labels: str, by: float = 1) -> None:
        self._model_metrics.get()[name].labels(*labels).inc(by)

    @override
    def record_task(self, task: str, outcome: TaskOutcome, seconds: float) -> None:
        self._observe("skillbus_task_seconds", seconds, task, outcome)

    @override
    def record_retry(self, task: str) -> None:
        self._count("skillbus_task_retries_total", task)

    @override
    def record_stage(self, task: str, stage: str, seconds: float) -> None:
        self._observe("skillbus_stage_seconds", seconds, task, stage)

    @override
    def record_query(self, answered: QueryOutcome, degraded: bool) -> None:
        self._count("skillbus_queries_total", answered, "yes" if degraded else "no")

    @override
    def record_answers(self, by: AnswerRecorder, count: int) -> None:
        self._count("skillbus_answers_recorded_total", by, by=count)

    @override
    def record_outcome(self, kind: str, by: str) -> None:
        self._count("skillbus_outcomes_total", kind, by)

    @override
    def record_dead_letter(self, task: str) -> None:
        self._count("skillbus_dead_letters_written_total", task or "none")

    @override
    def record_encoding(self, texts: int, tokens: int, seconds: float) -> None:
        self._count("skillbus_encoded_texts_total", by=texts)
        self._count("skillbus_encoded_tokens_total", by=tokens)
        self._count("skillbus_encoding_seconds_total", by=seconds)

    @override
    def record_submission(self, outcome: SubmissionOutcome) -> None:
        self._count("skillbus_submissions_total", outcome)

    @override
    def record_spans(self, outcome: SpanOutcome, count: int) -> None:
        self._count("skillbus_spans_total", outcome, by=count)

    @override
    def record_model_calls(
        self, stage: str, calls: int, prompt_tokens: int, completion_tokens: int, seconds: float
    ) -> None:
        self._model_metrics.get()["skillbus_model_seconds"].labels(stage).observe(seconds)
        self._count_model("skillbus_model_calls_total", stage, by=calls)
        self._count_model("skillbus_model_tokens_total", stage, "prompt", by=prompt_tokens)
        self._count_model("skillbus_model_tokens_total", stage, "completion", by=completion_tokens)

    @override
    def record_stored_answer(self, stage: str) -> None:
        self._count_model("skillbus_model_stored_answers_total", stage)

    @override
    def record_model_failure(self, stage: str, kind: ModelFailure) -> None:
        self._count_model("skillbus_model_failures_total", stage, kind)


def _make_metric(spec: MetricSpec, registry: CollectorRegistry | None) -> Any:
    from prometheus_client import Counter, Histogram

    if spec.kind == "counter":
        return Counter(spec.name, spec.meaning, spec.labels, registry=registry)
    buckets = _STAGE_BUCKETS if spec.name == "skillbus_stage_seconds" else _TASK_BUCKETS
    return Histogram(spec.name, spec.meaning, spec.labels, registry=registry, buckets=buckets)


class ProcessMetrics:
    """Metrics of a single process. recorder: records them."""

    def __init__(self, fetch_status: Callable[[], Status] | None = None) -> None:
        from prometheus_client.registry import CollectorRegistry

        self._registry = CollectorRegistry()
        self.recorder = PrometheusRecorder(self._registry)
        if fetch_status is not None:
            self.add_gauges(fetch_status)

    def add_gauges(self, fetch_status: Callable[[], Status]) -> None:
        """Add the gauges of the deployment, whose status is fetched when metrics are scraped."""
        self._registry.register(StatusGauges(fetch_status))

    def render(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)


class MultiprocessMetrics:
    """Metrics of a worker's parent and children, kept in files of a shared folder.

    Created in the parent before it forks. Children also mark themselves ready in this folder.
    """

    def __init__(self) -> None:
        _remove_stale_folders()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))
        os.environ[_MULTIPROC_VARIABLE] = str(self._folder)
        from prometheus_client import values

        make_value: Any = values.MultiProcessValue  # unannotated
        values.ValueClass = make_value()
        self.recorder = PrometheusRecorder(None)

    def mark_child_ready(self) -> None:
        """Record that this child has loaded its models and stores."""
        (self._folder / f"ready-{os.getpid()}").touch()

    def count_ready_children(self) -> int:
        """Return the number of running children that are marked ready."""
        pids = (int(path.name.removeprefix("ready-")) for path in self._folder.glob("ready-*"))
        return sum(_is_running(pid) for pid in pids)

    def render(self, gauges: StatusGauges) -> bytes:
        """Return the metrics in the Prometheus text format."""
        from prometheus_client import generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector
        from prometheus_client.registry import CollectorRegistry

        registry = CollectorRegistry()
        collector: Any = MultiProcessCollector  # unannotated
        collector(registry, str(self._folder))
        registry.register(gauges)
        return generate_latest(registry)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.environ.pop(_MULTIPROC_VARIABLE, None)


def _remove_stale_folders() -> None:
    """Remove the folders of workers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*-*"):
        pid = folder.name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
        if pid.isdigit() and not _is_running(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return state != "Z"
