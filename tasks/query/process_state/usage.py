"""Counts how often bundles contain a skill, written to the catalog in batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import structlog

from config.errors import TransientError
from graph.protocol import Catalog

log = structlog.get_logger()

_MAX_PENDING = 10_000


class UsageCounter:
    """Use counts on their way to the catalog.

    seconds: collect counts this long and write them in a thread; 0 writes each at once. Counts
    that are not yet written when the process dies are lost; they only decide the order in which
    sections are embedded.
    """

    def __init__(self, graph: Catalog, seconds: float = 0.0) -> None:
        self._graph = graph
        self._seconds = seconds
        self._lock = threading.Lock()
        self._pending: list[str] = []
        self._written_at = time.monotonic()

    def record(self, skill_ids: Sequence[str]) -> None:
        """Count one more use of each of these skills."""
        if not self._seconds:
            self._graph.increment_uses(skill_ids)
            return
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

    def _write(self, skill_ids: Sequence[str]) -> None:
        try:
            self._graph.increment_uses(skill_ids)
        except TransientError as error:
            log.info("uses of skills could not be counted", reason=str(error))
