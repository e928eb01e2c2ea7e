"""Published library for queries: pointers, and statistics over their revisions."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import structlog

from config.errors import TransientError
from graph.protocol import Catalog, SkillGraph
from graph.records import CatalogChanges, SkillState
from graph.visible_graph import VisibleGraph
from search.scoring.library_statistics import LibraryStatistics
from search.scoring.record_source import RecordSource
from skills.record import RevisionKey
from tasks.query.process_state.circuit_breaker import CircuitBreakers
from tasks.query.process_state.pointers import Pointers
from tasks.query.process_state.revision_facts import RevisionFactCache
from tasks.query.process_state.saved_library import SavedLibrary, SavedLibraryFile

log = structlog.get_logger()

_FULL_RELOAD_SECONDS = 86_400.0
_MIN_UNSAVED = 100
_MIN_UNSAVED_SHARE = 0.01
"""Share of changes since the statistics were saved at which they are saved again: each process
applies these changes at its start."""

_MANY_CHANGES = 1_000
_MANY_CHANGES_SHARE = 0.1
"""Share of simultaneous changes at which the library is counted anew, which takes less memory."""

_MAX_RESTRICTED = 32
"""Maximum sets of sources whose library is kept; each takes about 100 bytes a skill and 12 a
term."""


@dataclass(frozen=True, slots=True)
class LibrarySnapshot:
    """The published revisions at one moment.

    pointers: skill_id -> published seq. statistics: over exactly those revisions. age_seconds,
    error: set when the catalog did not answer and an earlier snapshot is used instead.
    """

    pointers: Pointers
    statistics: LibraryStatistics
    age_seconds: float = 0.0
    error: TransientError | None = None

    def get_keys(self, skill_ids: Iterable[str]) -> list[RevisionKey]:
        """Return the published revisions of these skills; unpublished skills are left out."""
        found = ((skill_id, self.pointers.get(skill_id)) for skill_id in skill_ids)
        return [RevisionKey(skill_id, seq) for skill_id, seq in found if seq]


class _RecordGoneError(Exception):
    """The record of a revision that the statistics count was deleted meanwhile."""


@dataclass(slots=True)
class _State:
    """The library up to an epoch of the catalog.

    absent: published revisions without a record. unsaved: number of changes since the statistics
    were saved.
    """

    epoch: int = 0
    snapshot: LibrarySnapshot = field(
        default_factory=lambda: LibrarySnapshot(Pointers({}), LibraryStatistics())
    )
    absent: set[RevisionKey] = field(default_factory=set)
    unsaved: int = 0


class PublishedLibrary:
    """Pointers and statistics in the memory of this process, updated from the catalog's changes.

    With `circuit_breakers`, a library that was read once stays usable while the stores do not
    answer: the last snapshot is used. Thread-safe.

    records: records of the revisions, with the completions in use. facts: drops its facts about
    skills that the change feed names. saved: statistics that an earlier process counted.
    """

    def __init__(
        self,
        graph: Catalog,
        records: RecordSource,
        circuit_breakers: CircuitBreakers | None = None,
        facts: RevisionFactCache | None = None,
        saved: SavedLibraryFile | None = None,
    ) -> None:
        self._graph = graph
        self.records = records
        self._circuit_breakers = circuit_breakers
        self._facts = facts
        self._saved = saved
        self._read_at = 0.0
        self._lock = threading.Lock()
        self._restricted: OrderedDict[frozenset[str], PublishedLibrary] = OrderedDict()
        self._restricted_lock = threading.Lock()
        self._state = _State()

    def refresh(self) -> LibrarySnapshot:
        """Return the present library, with one round trip to the catalog, and one to the index for
        changes.

        The pointers of a snapshot never change; its statistics follow the newest snapshot.
        """
        with self._lock:
            try:
                self._follow()
            except TransientError as error:
                if self._circuit_breakers is None or not self._read_at:
                    raise
                age = time.monotonic() - self._read_at
                return replace(self.latest, age_seconds=age, error=error)
            return self.latest

    @property
    def latest(self) -> LibrarySnapshot:
        """The snapshot that was read last, without a round trip."""
        return self._state.snapshot

    @property
    def epoch(self) -> int:
        """The epoch of the catalog up to which this library follows it."""
        return self._state.epoch

    def restricted_to(self, sources: frozenset[str]) -> PublishedLibrary:
        """Return the library limited to these sources: with its own pointers and statistics, which
        are counted when it is first read, and kept for the most recently used sets of sources."""
        with self._restricted_lock:
            library = self._restricted.pop(sources, None)
            if library is None:
                # It has the methods that a library calls.
                graph = cast(Catalog, VisibleGraph(cast(SkillGraph, self._graph), sources))
                library = PublishedLibrary(graph, self.records, self._circuit_breakers, self._facts)
            self._restricted[sources] = library
            while len(self._restricted) > _MAX_RESTRICTED:
                self._restricted.popitem(last=False)
            return library

    # -- saved statistics

    def save(self) -> None:
        """Save the statistics for later processes, if much has changed since they were saved.

        Raises TransientError if a store does not answer, or the disk is full.
        """
        if self._saved is None:
            return
        with self._lock:
            self._follow()
            state = self._state
            pointers = state.snapshot.pointers
            min_unsaved = max(_MIN_UNSAVED, _MIN_UNSAVED_SHARE * len(pointers))
            # Saved statistics that lack revisions would never be completed.
            if state.unsaved >= min_unsaved and not state.absent:
                self._saved.save(SavedLibrary(state.epoch, pointers, state.snapshot.statistics))
                state.unsaved = 0

    def drop_saved(self) -> None:
        """Delete the saved statistics; the next `save` writes them again."""
        if self._saved is not None:
            with self._lock:
                self._saved.delete()
                self._state.unsaved = max(_MIN_UNSAVED, len(self.latest.pointers))

    def drop_newer_saved(self) -> None:
        """Delete saved statistics that are newer than the catalog, which was then restored from a
        backup.

        The writing process calls it before the catalog grows beyond them.
        """
        if self._saved is None or (saved := self._saved.load()) is None:
            return
        if self._graph.get_changes_since(saved.epoch).epoch < saved.epoch:
            log.warning("saved statistics were newer than the catalog", epoch=saved.epoch)
            self._saved.delete()

    def _restore(self) -> _State | None:
        """Return the library of the saved statistics with the changes since; None if there are
        none, or they are not of this library.

        The catalog forgets removed skills after a time, which the number of skills shows.
        """
        saved = None if self._saved is None else self._saved.load()
        if saved is None:
            return None
        state = _State(saved.epoch, LibrarySnapshot(Pointers(saved.pointers), saved.statistics))
        changes = self._read_changes(state)
        if changes.epoch < saved.epoch:
            return None
        try:
            self._apply(state, changes)
        except _RecordGoneError:
            return None
        return state if self._count_published() == len(state.snapshot.pointers) else None

    def _count_published(self) -> int:
        sources = [source.source_id for source in self._graph.list_sources()]
        counted = self._graph.count_states_by_source(sources).values()
        return sum(states.get(SkillState.PUBLISHED, 0) for states in counted)

    # -- following the catalog

    def _follow(self) -> None:
        state = self._state
        try:
            if not self._read_at or time.monotonic() - self._read_at > _FULL_RELOAD_SECONDS:
                # The catalog forgets removed skills after a time: changes alone would miss them.
                state = self._restore() or _State()
            self._apply(state, self._read_changes(state))
        except _RecordGoneError:
            state = self._restore() or _State()
            self._apply(state, self._read_changes(state))
        # Last, so that an error during a reload leaves the library as it was read before.
        before, self._state = self._state, state
        self._read_at = time.monotonic()
        if state is not before:
            old, pointers = before.snapshot.pointers, state.snapshot.pointers
            replaced = [(name, seq) for name, seq in old.items() if pointers.get(name) != seq]
            self.records.release([RevisionKey(name, seq) for name, seq in replaced])

    def _read_changes(self, state: _State) -> CatalogChanges:
        if self._circuit_breakers is None:
            return self._graph.get_changes_since(state.epoch)
        return self._circuit_breakers.graph.call(lambda: self._graph.get_changes_since(state.epoch))

    def _apply(self, state: _State, changes: CatalogChanges) -> None:
        if self._facts is not None:
            self._facts.forget(changes.relinked)
        if changes.pointers:
            state.snapshot = self._apply_pointers(state, changes.pointers)
            state.unsaved += len(changes.pointers)
        state.epoch = changes.epoch

    def _apply_pointers(self, state: _State, moved: Mapping[str, int]) -> LibrarySnapshot:
        before, statistics = state.snapshot.pointers, state.snapshot.statistics
        moved = {name: seq for name, seq in moved.items() if before.get(name, 0) != seq}
        pointers = before.with_changes(moved)
        if len(moved) > _MANY_CHANGES + _MANY_CHANGES_SHARE * len(before):
            statistics = self._count(state, pointers)
        else:
            self._recount(state, moved)
        self.records.release([RevisionKey(name, before[name]) for name in moved if name in before])
        return LibrarySnapshot(pointers, statistics)

    def _count(self, state: _State, pointers: Mapping[str, int]) -> LibraryStatistics:
        """Return the statistics over these revisions, reading a few of them at a time."""
        keys = [RevisionKey(skill_id, seq) for skill_id, seq in pointers.items()]
        statistics, found = LibraryStatistics(), set[RevisionKey]()
        for some in self.records.read(keys):
            statistics.add(some)
            found.update(some.keys)
        state.absent = set(keys) - found
        return statistics

    def _recount(self, state: _State, moved: Mapping[str, int]) -> None:
        """Update the statistics by the published and superseded revisions."""
        before, statistics = state.snapshot.pointers, state.snapshot.statistics
        fresh = [RevisionKey(name, seq) for name, seq in moved.items() if seq]
        superseded = [RevisionKey(name, before[name]) for name in moved if name in before]
        counted = [key for key in superseded if key not in state.absent]
        # All are read before any is counted, so that an error leaves the statistics whole.
        added = list(self.records.read(fresh)) if fresh else []
        gone = list(self.records.read(counted)) if counted else []
        if sum(map(len, gone)) < len(counted):
            raise _RecordGoneError
        for some in added:
            statistics.add(some)
        for some in gone:
            statistics.discard(some)
        found = {key for some in added for key in some.keys}
        state.absent = state.absent.difference(superseded) | (set(fresh) - found)
