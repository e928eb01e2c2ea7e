"""The published library as a query sees it: pointers, and what is counted over it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from config.errors import TransientError
from graph.protocol import SkillGraph
from search.protocol import ForwardRecord, SearchIndex
from search.scoring.library_statistics import LibraryStatistics
from skills.record import RevisionKey
from tasks.policies import QUERY
from tasks.query.degradation import CircuitBreakers

_FULL_RELOAD_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class LibrarySnapshot:
    """pointers: skill_id -> published seq. statistics: over exactly those revisions. stale: why
    these are of an earlier moment, "" when they are of now."""

    pointers: Mapping[str, int]
    statistics: LibraryStatistics
    stale_reason: str = ""

    def get_keys(self, skill_ids: Iterable[str]) -> list[RevisionKey]:
        """The published revisions of these skills; one that is not published is left out."""
        found = ((skill_id, self.pointers.get(skill_id)) for skill_id in skill_ids)
        return [RevisionKey(skill_id, seq) for skill_id, seq in found if seq]

    def is_published(self, key: RevisionKey) -> bool:
        """Whether a revision is the published one of its skill."""
        return self.pointers.get(key.skill_id) == key.seq


class _RetainingStatistics(LibraryStatistics):
    """Statistics that hand out a revision's record for as long as a query may still ask for it.

    A query holds the pointers of its beginning; one that runs beside it may take in newer ones.
    """

    def __init__(self, records: Mapping[RevisionKey, ForwardRecord]) -> None:
        super().__init__(records)
        self._gone: dict[RevisionKey, tuple[float, ForwardRecord]] = {}

    def discard(self, key: RevisionKey) -> None:
        """Take a revision out of the figures."""
        now = time.monotonic()
        gone = {old: kept for old, kept in self._gone.items() if now - kept[0] < QUERY.time_limit}
        for old, record in super().get_records([key]).items():
            gone[old] = (now, record)
        self._gone = gone
        super().discard(key)

    def get_records(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        """Records of the revisions that are in, or were a moment ago."""
        found, gone = super().get_records(keys), self._gone
        found |= {key: gone[key][1] for key in keys if key not in found and key in gone}
        return {key: found[key] for key in keys if key in found}


class PublishedLibrary:
    """Pointers and statistics of this process, kept up by the catalog's change feed.

    With `outages` a library that was read once outlives its stores: while they are away, the
    view is that of the last time.
    """

    def __init__(
        self, graph: SkillGraph, index: SearchIndex, circuit_breakers: CircuitBreakers | None = None
    ) -> None:
        self._graph = graph
        self._index = index
        self._circuit_breakers = circuit_breakers
        self._read = 0.0
        self._lock = threading.Lock()
        self._epoch = 0
        self._snapshot = LibrarySnapshot({}, LibraryStatistics())

    def refresh(self) -> LibrarySnapshot:
        """The library of now; one round trip to the catalog, and one to the index for what moved.

        A view stays whole for who holds it, while statistics follow the newest one.
        """
        with self._lock:
            try:
                self._apply_changes()
            except TransientError as error:
                if self._circuit_breakers is None or not self._read:
                    raise
                age = time.monotonic() - self._read
                return replace(
                    self._snapshot, stale_reason=f"the library as of {age:.0f} s ago: {error}"
                )
            return self._snapshot

    @property
    def latest(self) -> LibrarySnapshot:
        """The library as this process saw it last; no round trip."""
        return self._snapshot

    def _apply_changes(self) -> None:
        if time.monotonic() - self._read > _FULL_RELOAD_SECONDS:
            # What was removed and pruned since would not be told any more.
            self._epoch, self._snapshot = 0, LibrarySnapshot({}, LibraryStatistics())
        if self._circuit_breakers is None:
            changes = self._graph.get_changes_since(self._epoch)
        else:
            changes = self._circuit_breakers.graph.call(
                lambda: self._graph.get_changes_since(self._epoch)
            )
        if changes.pointers:
            self._snapshot = self._apply_pointers(changes.pointers)
        self._epoch = changes.epoch
        self._read = time.monotonic()

    def _apply_pointers(self, moved: Mapping[str, int]) -> LibrarySnapshot:
        before, statistics = self._snapshot.pointers, self._snapshot.statistics
        keys = [RevisionKey(skill_id, seq) for skill_id, seq in moved.items() if seq]
        if not before:
            statistics = _RetainingStatistics(self._index.get_forward_records(keys))
            return LibrarySnapshot({key.skill_id: key.seq for key in keys}, statistics)
        for key, record in self._index.get_forward_records(statistics.missing_keys(keys)).items():
            statistics.add(key, record)
        for skill_id, seq in moved.items():
            if skill_id in before and before[skill_id] != seq:
                statistics.discard(RevisionKey(skill_id, before[skill_id]))
        pointers = {**before, **moved}
        return LibrarySnapshot({name: seq for name, seq in pointers.items() if seq}, statistics)
