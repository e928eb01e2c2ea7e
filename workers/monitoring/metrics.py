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
from collections.abc import Callable, Sequence
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
from workers.monitoring.metric_specs import MODEL_METRICS, PROCESS_METRICS
from workers.monitoring.status_gauges import Status, StatusGauges

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram
    from prometheus_client.registry import CollectorRegistry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_MULTIPROC_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_FOLDER_PREFIX = "skillbus-metrics-"
_TASK_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_STAGE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the buckets, in seconds."""


class _Factory:
    """Creates counters and histograms by their specs."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._registry = registry
        self._specs = {spec.name: spec for spec in (*PROCESS_METRICS, *MODEL_METRICS)}

    def counter(self, name: str) -> Counter:
        from prometheus_client import Counter

        spec = self._specs[name]
        return Counter(name, spec.meaning, spec.labels, registry=self._registry)

    def histogram(self, name: str, buckets: Sequence[float]) -> Histogram:
        from prometheus_client import Histogram

        spec = self._specs[name]
        return Histogram(name, spec.meaning, spec.labels, registry=self._registry, buckets=buckets)


class _ModelMetrics:
    """Metrics of the language model."""

    def __init__(self, make: _Factory) -> None:
        self.seconds = make.histogram("skillbus_model_seconds", _TASK_BUCKETS)
        self.calls = make.counter("skillbus_model_calls_total")
        self.tokens = make.counter("skillbus_model_tokens_total")
        self.stored = make.counter("skillbus_model_stored_answers_total")
        self.failures = make.counter("skillbus_model_failures_total")


class PrometheusRecorder(MetricsRecorder):
    """Records metrics in Prometheus counters and histograms; a call takes a few µs."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        """Create the metrics. registry: None in multiprocess mode, where
        values are kept in files."""
        make = _Factory(registry)
        self._tasks = make.histogram("skillbus_task_seconds", _TASK_BUCKETS)
        self._stages = make.histogram("skillbus_stage_seconds", _STAGE_BUCKETS)
        self._retries = make.counter("skillbus_task_retries_total")
        self._queries = make.counter("skillbus_queries_total")
        self._answers = make.counter("skillbus_answers_recorded_total")
        self._outcomes = make.counter("skillbus_outcomes_total")
        self._dead_letters = make.counter("skillbus_dead_letters_written_total")
        self._texts = make.counter("skillbus_encoded_texts_total")
        self._tokens = make.counter("skillbus_encoded_tokens_total")
        self._encoding = make.counter("skillbus_encoding_seconds_total")
        self._submissions = make.counter("skillbus_submissions_total")
        self._spans = make.counter("skillbus_spans_total")
        self._model = Lazy(lambda: _ModelMetrics(make))

    @override
    def record_task(self, task: str, outcome: TaskOutcome, seconds: float) -> None:
        self._tasks.labels(task, outcome).observe(seconds)

    @override
    def record_retry(self, task: str) -> None:
        self._retries.labels(task).inc()

    @override
    def record_stage(self, task: str, stage: str, seconds: float) -> None:
        self._stages.labels(task, stage).observe(seconds)

    @override
    def record_query(self, answered: QueryOutcome, degraded: bool) -> None:
        self._queries.labels(answered, "yes" if degraded else "no").inc()

    @override
    def record_answers(self, by: AnswerRecorder, count: int) -> None:
        self._answers.labels(by).inc(count)

    @override
    def record_outcome(self, kind: str, by: str) -> None:
        self._outcomes.labels(kind, by).inc()

    @override
    def record_dead_letter(self, task: str) -> None:
        self._dead_letters.labels(task or "none").inc()

    @override
    def record_encoding(self, texts: int, tokens: int, seconds: float) -> None:
        self._texts.inc(texts)
        self._tokens.inc(tokens)
        self._encoding.inc(seconds)

    @override
    def record_submission(self, outcome: SubmissionOutcome) -> None:
        self._submissions.labels(outcome).inc()

    @override
    def record_spans(self, outcome: SpanOutcome, count: int) -> None:
        self._spans.labels(outcome).inc(count)

    @override
    def record_model_calls(
        self, stage: str, calls: int, prompt_tokens: int, completion_tokens: int, seconds: float
    ) -> None:
        model = self._model.get()
        model.seconds.labels(stage).observe(seconds)
        model.calls.labels(stage).inc(calls)
        model.tokens.labels(stage, "prompt").inc(prompt_tokens)
        model.tokens.labels(stage, "completion").inc(completion_tokens)

    @override
    def record_stored_answer(self, stage: str) -> None:
        self._model.get().stored.labels(stage).inc()

    @override
    def record_model_failure(self, stage: str, kind: ModelFailure) -> None:
        self._model.get().failures.labels(stage, kind).inc()


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
