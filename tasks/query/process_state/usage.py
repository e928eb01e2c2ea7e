"""Counts of the bundles that contain a skill, written to the catalog in batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import structlog

from config.errors import SkillbusError
from graph.protocol import Catalog

log = structlog.get_logger()

_MAX_PENDING = 10_000


class UsageCounter:
    """Collects use counts and writes them to the catalog.

    seconds: time for which counts are collected. A thread writes them, so that a query does not
    wait for other writers of the catalog. Counts that are not yet written when the process dies are
    lost; they only decide the order in which skills are embedded.
    """

    def __init__(self, graph: Catalog, seconds: float = 5.0) -> None:
        self._graph = graph
        self._seconds = seconds
        self._lock = threading.Lock()
        self._pending: list[str] = []
        self._written_at = time.monotonic()

    def record(self, skill_ids: Sequence[str]) -> None:
        """Count one more use of each of these skills."""
        with self._lock:
            # While the catalog does not answer, the oldest are dropped.
            self._pending = [*self._pending, *skill_ids][-_MAX_PENDING:]
            if time.monotonic() - self._written_at < self._seconds:
                return
            self._written_at = time.monotonic()
            due, self._pending = self._pending, []
        threading.Thread(
            target=self._write, args=(due,), name="skillbus-usage", daemon=True
        ).start()

    def flush(self) -> None:
        """Write the collected counts, in this thread."""
        with self._lock:
            due, self._pending = self._pending, []
        if due:
            self._write(due)

    def _write(self, skill_ids: Sequence[str]) -> None:
        try:
            self._graph.increment_uses(skill_ids)
        except SkillbusError as error:  # also of a store that was closed meanwhile
            log.info("use counts of skills were not stored", reason=str(error))
