"""Gauges of the deployment, computed from its status when metrics are scraped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.policies import POLICIES
from workers.monitoring.metric_specs import DEPLOYMENT_METRICS

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Status = Mapping[str, Any]
"""The data of `skillbus status --json`."""

STATUS_CACHE_SECONDS = 5.0
"""Time for which a status is reused by further scrapes."""


class StatusGauges:
    """A Prometheus collector of the gauges; a status is reused for `cache_seconds`."""

    def __init__(
        self, fetch_status: Callable[[], Status], cache_seconds: float = STATUS_CACHE_SECONDS
    ) -> None:
        self._fetch_status = fetch_status
        self._cache_seconds = cache_seconds
        self._lock = threading.Lock()
        self._fetched_at = -cache_seconds
        self._status: Status = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges, for a registry; unknown values have no sample."""
        # Imported only after MultiprocessMetrics has set the variable that the import reads.
        from prometheus_client.core import GaugeMetricFamily

        values = gauge_values(self.get_status())
        for spec in DEPLOYMENT_METRICS:
            family = GaugeMetricFamily(spec.name, spec.meaning, labels=spec.labels)
            for labels, value in values.get(spec.name, {}).items():
                family.add_metric(labels, value)
            yield family

    def get_status(self) -> Status:
        """Return the status, at most `cache_seconds` old."""
        with self._lock:
            if time.monotonic() - self._fetched_at > self._cache_seconds:
                self._status = self._fetch_status()
                self._fetched_at = time.monotonic()
            return self._status


Values = dict[str, dict[tuple[str, ...], float]]


def gauge_values(status: Status) -> Values:
    """Return the value of each gauge by name and labels, without those
    missing or None in `status`."""
    found: Values = {}

    def put(name: str, value: float | None, *labels: str) -> None:
        if value is not None:
            found.setdefault(f"skillbus_{name}", {})[labels] = float(value)

    for server in status.get("servers") or ():
        put("server_up", server["up"], server["server"])
        put("server_seconds", server["seconds"], server["server"])
    for queue in status.get("queues") or ():
        put("queue_messages", queue["waiting"], queue["queue"])
    for kind, plural in (("event", "events"), ("query", "queries")):
        put("open_jobs", status.get(f"open_{plural}"), kind)
        put("oldest_job_seconds", status.get(f"oldest_{kind}_seconds"), kind)
    put("dead_letters", status.get("dead_letters"))
    has_journal = status.get("open_events") is not None  # its server has the problem too
    put("stalled", bool(status.get("problem")) if has_journal else None)
    for state, count in (status.get("skills") or {}).items():
        put("skills", count, state)
    for state, count in (status.get("reviews") or {}).items():
        put("reviews", count, state)
    if status.get("skills"):
        put("skills_without_vectors", status["skills"]["published"] - status["with_vectors"])
        put("unembedded_skills", status["skills"]["published"] - status["embedded"])
    refinement = (status.get("language_model") or {}).get("refinement") or {}
    for stage, counts in (refinement.get("stages") or {}).items():
        put("unrefined_skills", counts["waiting"], stage)
    put("index_lag_seconds", status.get("oldest_waiting_seconds"))
    put("unlinked_skills", status.get("unlinked"))
    put("links", status.get("links"))
    put("usage_days_behind", status.get("usage_days_behind"))
    if status.get("sources") is not None:
        put("sources", len(status["sources"]))
    _put_workers(status.get("workers"), put)
    consumers = status.get("submissions")
    if consumers is not None:
        put("consumers", sum(one["connected"] for one in consumers))
        waiting = [one["waiting"] for one in consumers if one["waiting"] is not None]
        put("submissions_waiting", max(waiting, default=None))
    return found


def _put_workers(workers: Sequence[Mapping[str, Any]] | None, put: Callable[..., None]) -> None:
    if workers is None:
        return
    running = [task["task"] for worker in workers for task in worker["running"]]
    for policy in POLICIES.values():
        consuming = sum(policy.queue in worker["queues"] for worker in workers)
        put("workers", consuming, policy.queue)
        put("running_tasks", running.count(policy.name), policy.name)
