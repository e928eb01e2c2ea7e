"""Degradation of queries while a server does not answer: fallbacks of stores, and their report.

Only queries degrade, and only if stores are servers. Changes of the library fail and are retried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np
import structlog

from config.errors import TransientError
from graph.entry_filter import EntryCount
from graph.protocol import SkillGraph
from graph.records import Adjacency, CatalogEntry, Link, SafetyRecord, SkillState, SourceAccess
from search.protocol import (
    Hit,
    PassageTerms,
    Search,
    SearchIndex,
    StoredRevision,
    Vector,
)
from skills.record import ParsedSkill, RevisionKey, SafetyFinding, SkillRecord
from tasks.query.process_state.circuit_breaker import CircuitBreaker, CircuitBreakers
from tasks.services import Services

K = TypeVar("K")
T = TypeVar("T")

log = structlog.get_logger()

_LINKS_UNKNOWN = "links and paths are not known: the catalog did not answer"
_NO_SKILL_VECTORS = "ranked by words only: the search index did not answer"
_NO_SECTION_COSINES = "ranked without the skills' sections: the search index did not answer"
_NO_SECTION_VECTORS = "passages chosen by words only: the search index did not answer"
_MIN_MISSING_SHARE = 0.01
"""Minimum share of candidates without vectors that a bundle reports: single skills that have just
changed need no report."""
_UNREAD_FINDING = "its text was marked, and cannot be read now"


class Degradations:
    """Parts that one query had to do without: fixed texts for the bundle, errors for the log.

    No reason quotes an error, since errors contain addresses of servers and readers of a bundle may
    be outside the deployment.
    """

    def __init__(self) -> None:
        self._reasons: dict[str, None] = {}
        self._errors: dict[str, None] = {}

    def add(self, reason: str, error: TransientError | None = None) -> None:
        """Record a reason for the bundle and its error for the log, without repeats."""
        self._reasons.setdefault(reason)
        if error is not None:
            self._errors.setdefault(str(error))

    def add_missing_vectors(self, missing: int, candidates: int) -> None:
        """Record how many candidates are ranked by words because their vectors are not computed
        yet; nothing if no vectors could be read at all."""
        if not missing or _NO_SKILL_VECTORS in self._reasons:
            return
        if (share := missing / candidates) >= _MIN_MISSING_SHARE:
            self.add(
                f"{share:.0%} of the candidates are ranked by words: their vectors are not "
                "computed yet"
            )

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons in the order in which they were added."""
        return tuple(self._reasons)

    def log_errors(self, query_id: str) -> None:
        """Log one warning with all errors, if there were any."""
        if self._errors:
            log.warning(
                "query answered while a server did not answer",
                query_id=query_id,
                degraded=list(self._reasons),
                errors=list(self._errors),
            )


def with_fallbacks(services: Services, degradations: Degradations) -> Services:
    """Return these services for one query: reads that fail return nothing and are recorded.

    Returned unchanged if stores are not servers.
    """
    breakers = services.circuit_breakers
    if breakers is None:
        return services
    index = DegradingIndex(services.index, breakers.index, degradations)
    graph = DegradingGraph(services.graph, breakers, degradations)
    # These views have the methods that a query calls, and no method that changes the library.
    return replace(services, index=cast(SearchIndex, index), graph=cast(SkillGraph, graph))


class DegradingIndex:
    """A `SearchIndex` for one query: vectors that cannot be read are left out.

    `search_many` and `get_revisions` raise TransientError; their callers have fallbacks.
    """

    def __init__(
        self, index: SearchIndex, breaker: CircuitBreaker, degradations: Degradations
    ) -> None:
        self._index = index
        self._breaker = breaker
        self._degradations = degradations

    def search_many(self, searches: Sequence[Search]) -> list[list[Hit]]:
        """Return the hits of each search."""
        return self._breaker.call(lambda: self._index.search_many(searches))

    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
        """Return revisions as stored."""
        return self._breaker.call(lambda: self._index.get_revisions(keys))

    def get_skill_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, tuple[float, float]]:
        """Return cosines with skill vectors; none if the index does not answer."""
        return self._read_or_degrade(
            lambda: self._index.get_skill_cosines(keys, vector), _NO_SKILL_VECTORS
        )

    def get_section_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, float]:
        """Return best cosines of sections; none if the index does not answer."""
        return self._read_or_degrade(
            lambda: self._index.get_section_cosines(keys, vector), _NO_SECTION_COSINES
        )

    def get_section_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return section vectors; none if the index does not answer."""
        return self._read_or_degrade(
            lambda: self._index.get_section_vectors(keys), _NO_SECTION_VECTORS
        )

    def get_cached_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return vectors under these text hashes; none if the index does not answer."""
        try:
            return self._breaker.call(lambda: self._index.get_cached_vectors(hashes))
        except TransientError:
            return {}  # they are computed again: the answer stays the same

    def save_section_vectors(
        self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector
    ) -> None:
        """Store vectors, if the index answers."""
        try:
            self._breaker.call(lambda: self._index.save_section_vectors(key, hashes, vectors))
        except TransientError:
            return  # the task that embeds sections stores them later

    def _read_or_degrade(self, read: Callable[[], dict[K, T]], reason: str) -> dict[K, T]:
        try:
            return self._breaker.call(read)
        except TransientError as error:
            self._degradations.add(reason, error)
            return {}


class DegradingGraph:
    """A `SkillGraph` for one query: links and entries that cannot be read are left out."""

    def __init__(
        self, graph: SkillGraph, breakers: CircuitBreakers, degradations: Degradations
    ) -> None:
        self._graph = graph
        self._breakers = breakers
        self._degradations = degradations

    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """Return adjacency rows; none if the catalog does not answer."""
        return self._read_or_degrade(lambda: self._graph.get_adjacency(skill_ids, fan_out), {})

    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        """Return links; none if the catalog does not answer."""
        return self._read_or_degrade(lambda: self._graph.get_links_among(skill_ids), [])

    def read_access(self) -> SourceAccess:
        """Return sources and their groups; those that were read last if the catalog does not
        answer.

        Raises TransientError if this process has not read them yet.
        """
        breakers = self._breakers
        try:
            breakers.last_access = breakers.graph.call(self._graph.read_access)
        except TransientError as error:
            self._degradations.add(_LINKS_UNKNOWN, error)
            if breakers.last_access is None:
                raise
        return breakers.last_access

    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        """Return entries; none if the catalog does not answer."""
        return self._read_or_degrade(lambda: self._graph.get_entries(skill_ids), [])

    def count_entries(self) -> list[EntryCount]:
        """Count entries; nothing if the catalog does not answer."""
        return self._read_or_degrade(self._graph.count_entries, [])

    def get_safety_records(self, skill_ids: Sequence[str]) -> list[SafetyRecord]:
        """Return the data of skills that policy checks; none if the catalog does not answer."""
        return self._read_or_degrade(lambda: self._graph.get_safety_records(skill_ids), [])

    def _read_or_degrade(self, read: Callable[[], T], nothing: T) -> T:
        try:
            return self._breakers.graph.call(read)
        except TransientError as error:
            self._degradations.add(_LINKS_UNKNOWN, error)
            return nothing


def fallback_revisions(entries: Iterable[CatalogEntry]) -> dict[str, StoredRevision]:
    """Return published skills from the catalog, by skill_id: name and description, no passage.

    Used when the index, which holds the text, does not answer.
    """
    return {
        entry.skill_id: _fallback_revision(entry)
        for entry in entries
        if entry.state is SkillState.PUBLISHED
    }


def _fallback_revision(entry: CatalogEntry) -> StoredRevision:
    nothing = PassageTerms(np.zeros(1, np.int32), np.zeros(0, np.uint64), np.zeros(0, np.uint16))
    findings = (
        (SafetyFinding("unread", entry.safety_level, 1, _UNREAD_FINDING),)
        if entry.safety_level
        else ()
    )
    record = SkillRecord(
        entry.name,
        entry.description,
        capability="",
        licence=entry.licence,
        language=entry.language,
        safety_level=entry.safety_level,
        safety=findings,
        scanner=entry.scanner_version,
    )
    return StoredRevision(
        RevisionKey(entry.skill_id, entry.seq),
        entry.content_hash,
        ParsedSkill(record, lines=(), body_line=1, sections=(), passages=()),
        nothing,
        (),
    )
