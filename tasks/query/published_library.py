"""The published library as a query sees it: pointers, and what is counted over it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from config.errors import TransientError
from graph.protocol import SkillGraph
from search.protocol import ForwardRecord, SearchIndex
from search.scoring.statistics import LibraryStatistics
from skills.record import RevisionKey
from tasks.policies import QUERY
from tasks.query.degradation import Outages

_FORGETFUL_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class View:
    """pointers: skill_id -> published seq. statistics: over exactly those revisions. stale: why
    these are of an earlier moment, "" when they are of now."""

    pointers: Mapping[str, int]
    statistics: LibraryStatistics
    stale: str = ""

    def keys(self, skill_ids: Iterable[str]) -> list[RevisionKey]:
        """The published revisions of these skills; one that is not published is left out."""
        found = ((skill_id, self.pointers.get(skill_id)) for skill_id in skill_ids)
        return [RevisionKey(skill_id, seq) for skill_id, seq in found if seq]

    def published(self, key: RevisionKey) -> bool:
        """Whether a revision is the published one of its skill."""
        return self.pointers.get(key.skill_id) == key.seq


class _LingeringStatistics(LibraryStatistics):
    """Statistics that hand out a revision's record for as long as a query may still ask for it.

    A query holds the pointers of its beginning; one that runs beside it may take in newer ones.
    """

    def __init__(self, records: Mapping[RevisionKey, ForwardRecord]) -> None:
        super().__init__(records)
        self._gone: dict[RevisionKey, tuple[float, ForwardRecord]] = {}

    def discard(self, key: RevisionKey) -> None:
        """Take a revision out of the figures."""
        now = time.monotonic()
        gone = {old: kept for old, kept in self._gone.items() if now - kept[0] < QUERY.seconds}
        for old, record in super().forward_of([key]).items():
            gone[old] = (now, record)
        self._gone = gone
        super().discard(key)

    def forward_of(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        """Records of the revisions that are in, or were a moment ago."""
        found, gone = super().forward_of(keys), self._gone
        found |= {key: gone[key][1] for key in keys if key not in found and key in gone}
        return {key: found[key] for key in keys if key in found}


class Library:
    """Pointers and statistics of this process, kept up by the catalog's change feed.

    With `outages` a library that was read once outlives its stores: while they are away, the
    view is that of the last time.
    """

    def __init__(
        self, graph: SkillGraph, index: SearchIndex, outages: Outages | None = None
    ) -> None:
        self._graph = graph
        self._index = index
        self._outages = outages
        self._read = 0.0
        self._lock = threading.Lock()
        self._epoch = 0
        self._view = View({}, LibraryStatistics())

    def refresh(self) -> View:
        """The library of now; one round trip to the catalog, and one to the index for what moved.

        A view stays whole for who holds it, while statistics follow the newest one.
        """
        with self._lock:
            try:
                self._follow()
            except TransientError as error:
                if self._outages is None or not self._read:
                    raise
                age = time.monotonic() - self._read
                return replace(self._view, stale=f"the library as of {age:.0f} s ago: {error}")
            return self._view

    @property
    def latest(self) -> View:
        """The library as this process saw it last; no round trip."""
        return self._view

    def _follow(self) -> None:
        if time.monotonic() - self._read > _FORGETFUL_SECONDS:
            # What was removed and pruned since would not be told any more.
            self._epoch, self._view = 0, View({}, LibraryStatistics())
        if self._outages is None:
            changes = self._graph.changes(self._epoch)
        else:
            changes = self._outages.graph.call(lambda: self._graph.changes(self._epoch))
        if changes.pointers:
            self._view = self._moved(changes.pointers)
        self._epoch = changes.epoch
        self._read = time.monotonic()

    def _moved(self, moved: Mapping[str, int]) -> View:
        before, statistics = self._view.pointers, self._view.statistics
        keys = [RevisionKey(skill_id, seq) for skill_id, seq in moved.items() if seq]
        if not before:
            statistics = _LingeringStatistics(self._index.forward(keys))
            return View({key.skill_id: key.seq for key in keys}, statistics)
        for key, record in self._index.forward(statistics.missing(keys)).items():
            statistics.add(key, record)
        for skill_id, seq in moved.items():
            if skill_id in before and before[skill_id] != seq:
                statistics.discard(RevisionKey(skill_id, before[skill_id]))
        pointers = {**before, **moved}
        return View({name: seq for name, seq in pointers.items() if seq}, statistics)
