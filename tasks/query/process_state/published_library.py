"""The published library as queries see it: pointers, and statistics over their revisions."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from config.errors import TransientError
from graph.protocol import Catalog
from search.completed_terms import use_completed
from search.protocol import ForwardRecord, SearchIndex
from search.scoring.library_statistics import LibraryStatistics
from skills.record import RevisionKey
from tasks.policies import QUERY
from tasks.query.process_state.circuit_breaker import CircuitBreakers
from tasks.query.process_state.revision_facts import RevisionFactCache

_FULL_RELOAD_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class LibrarySnapshot:
    """The published revisions at one moment.

    pointers: skill_id -> published seq. statistics: over exactly those revisions. age_seconds,
    error: set when the catalog did not answer and an earlier snapshot is used instead.
    """

    pointers: Mapping[str, int]
    statistics: LibraryStatistics
    age_seconds: float = 0.0
    error: TransientError | None = None

    def get_keys(self, skill_ids: Iterable[str]) -> list[RevisionKey]:
        """The published revisions of these skills; unpublished skills are left out."""
        found = ((skill_id, self.pointers.get(skill_id)) for skill_id in skill_ids)
        return [RevisionKey(skill_id, seq) for skill_id, seq in found if seq]


class _RetainingStatistics(LibraryStatistics):
    """Statistics that keep the record of a superseded revision for as long as a query may need it.

    A query keeps the pointers that it started with; another one that runs at the same time may
    load newer ones meanwhile.
    """

    def __init__(self, records: Mapping[RevisionKey, ForwardRecord]) -> None:
        super().__init__(records)
        self._gone: dict[RevisionKey, tuple[float, ForwardRecord]] = {}

    def discard(self, key: RevisionKey) -> None:
        """Take a revision out of the statistics; its record stays readable for a while."""
        now = time.monotonic()
        gone = {old: kept for old, kept in self._gone.items() if now - kept[0] < QUERY.time_limit}
        for old, record in super().get_records([key]).items():
            gone[old] = (now, record)
        self._gone = gone
        super().discard(key)

    def get_records(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        """Records of these revisions, superseded ones included."""
        found, gone = super().get_records(keys), self._gone
        found |= {key: gone[key][1] for key in keys if key not in found and key in gone}
        return {key: found[key] for key in keys if key in found}


class PublishedLibrary:
    """Pointers and statistics in the memory of this process, updated from the catalog's changes.

    With `circuit_breakers`, a library that was read once stays usable while the stores do not
    answer: the last snapshot is used. Thread-safe.

    facts: forgets what it knows of skills that the change feed names. origins: of the language
    model's completions that statistics and scores use.
    """

    def __init__(
        self,
        graph: Catalog,
        index: SearchIndex,
        circuit_breakers: CircuitBreakers | None = None,
        facts: RevisionFactCache | None = None,
        origins: Collection[str] = (),
    ) -> None:
        self._graph = graph
        self._index = index
        self._circuit_breakers = circuit_breakers
        self._facts = facts
        self._origins = frozenset(origins)
        self._read_at = 0.0
        self._lock = threading.Lock()
        self._epoch = 0
        self._snapshot = LibrarySnapshot({}, LibraryStatistics())

    def refresh(self) -> LibrarySnapshot:
        """The present library: one round trip to the catalog, and one to the index for changes.

        The pointers of a snapshot never change; its statistics follow the newest snapshot.
        """
        with self._lock:
            try:
                self._apply_changes()
            except TransientError as error:
                if self._circuit_breakers is None or not self._read_at:
                    raise
                age = time.monotonic() - self._read_at
                return replace(self._snapshot, age_seconds=age, error=error)
            return self._snapshot

    @property
    def latest(self) -> LibrarySnapshot:
        """The snapshot that was read last, without a round trip."""
        return self._snapshot

    def _apply_changes(self) -> None:
        if time.monotonic() - self._read_at > _FULL_RELOAD_SECONDS:
            # The catalog forgets removed skills after a time: changes alone would miss them.
            self._epoch, self._snapshot = 0, LibrarySnapshot({}, LibraryStatistics())
        if self._circuit_breakers is None:
            changes = self._graph.get_changes_since(self._epoch)
        else:
            changes = self._circuit_breakers.graph.call(
                lambda: self._graph.get_changes_since(self._epoch)
            )
        if self._facts is not None:
            self._facts.forget(changes.relinked)
        if changes.pointers:
            self._snapshot = self._apply_pointers(changes.pointers)
        self._epoch = changes.epoch
        self._read_at = time.monotonic()

    def _apply_pointers(self, moved: Mapping[str, int]) -> LibrarySnapshot:
        before, statistics = self._snapshot.pointers, self._snapshot.statistics
        keys = [RevisionKey(skill_id, seq) for skill_id, seq in moved.items() if seq]
        if not before:
            statistics = _RetainingStatistics(self._read_records(keys))
            return LibrarySnapshot({key.skill_id: key.seq for key in keys}, statistics)
        for key, record in self._read_records(statistics.missing_keys(keys)).items():
            statistics.add(key, record)
        for skill_id, seq in moved.items():
            if skill_id in before and before[skill_id] != seq:
                statistics.discard(RevisionKey(skill_id, before[skill_id]))
        pointers = {**before, **moved}
        return LibrarySnapshot({name: seq for name, seq in pointers.items() if seq}, statistics)

    def _read_records(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        """Forward records with the completions in use."""
        found = self._index.get_forward_records(keys)
        return {key: use_completed(record, self._origins) for key, record in found.items()}
