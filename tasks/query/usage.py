"""How often skills are chosen: gathered here, written now and then, beside the queries."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import structlog

from config.errors import TransientError
from graph.protocol import SkillGraph

log = structlog.get_logger()

_MOST = 10_000


class UsageCounter:
    """Counts for the catalog; with `seconds` they are gathered for so long and written by a thread
    of their own. What is not yet written when the process dies is lost: it orders paging only."""

    def __init__(self, graph: SkillGraph, seconds: float = 0.0) -> None:
        self._graph = graph
        self._seconds = seconds
        self._lock = threading.Lock()
        self._gathered: list[str] = []
        self._written = time.monotonic()

    def record(self, skill_ids: Sequence[str]) -> None:
        """Bundles chose these skills once more."""
        if not self._seconds:
            self._graph.increment_uses(skill_ids)
            return
        with self._lock:
            # While the catalog is away, what is too much is forgotten.
            self._gathered = [*self._gathered, *skill_ids][-_MOST:]
            if time.monotonic() - self._written < self._seconds:
                return
            self._written = time.monotonic()
            due, self._gathered = self._gathered, []
        threading.Thread(
            target=self._write, args=(due,), name="skillbus-usage", daemon=True
        ).start()

    def _write(self, skill_ids: Sequence[str]) -> None:
        try:
            self._graph.increment_uses(skill_ids)
        except TransientError as error:
            log.info("use was not counted", reason=str(error))
