"""Servers that are away: readers go on with what is left, and the bundle says with what.

Only a query is tolerant, and only where stores are servers. What changes the library waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from config.errors import TransientError
from graph.protocol import Adjacency, CatalogChanges, CatalogEntry, Link, SkillGraph, Source
from search.protocol import (
    Hit,
    LexicalSearch,
    SearchIndex,
    StoredRevision,
    Vector,
    VectorSearch,
)
from skills.record import RevisionKey

T = TypeVar("T")

_OPEN_SECONDS = 3.0


class CircuitBreaker:
    """Whether a server is away. Who asks within some seconds of a failure fails at once, so that
    one query waits for a server that hangs, and not all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._reason = ""

    def call(self, work: Callable[[], T]) -> T:
        """The result of `work`; raises TransientError when it does, or did a moment ago."""
        with self._lock:
            if time.monotonic() < self._until:
                raise TransientError(self._reason)
        try:
            return work()
        except TransientError as error:
            with self._lock:
                self._until, self._reason = time.monotonic() + _OPEN_SECONDS, str(error)
            raise


@dataclass(slots=True)
class CircuitBreakers:
    """Of the servers that a query reads from."""

    index: CircuitBreaker = field(default_factory=CircuitBreaker)
    graph: CircuitBreaker = field(default_factory=CircuitBreaker)


class Degradations:
    """What one query had to do without, each told once."""

    def __init__(self) -> None:
        self.reasons: dict[str, None] = {}

    def add(self, what: str, error: TransientError) -> None:
        """Note a loss and its reason."""
        self.reasons.setdefault(f"{what}: {error}")


class DegradingIndex:
    """A `SearchIndex` for one query: vectors that cannot be read are none.

    Searching and reading text raise, for the caller to find another way.
    """

    def __init__(
        self, index: SearchIndex, breaker: CircuitBreaker, degradations: Degradations
    ) -> None:
        self._index = index
        self._breaker = breaker
        self._degradations = degradations

    def search_many(self, searches: Sequence[LexicalSearch | VectorSearch]) -> list[list[Hit]]:
        """The hits of each search."""
        return self._breaker.call(lambda: self._index.search_many(searches))

    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
        """Revisions as stored."""
        return self._breaker.call(lambda: self._index.get_revisions(keys))

    def get_skill_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Skill vectors; none while the index is away."""
        try:
            return self._breaker.call(lambda: self._index.get_skill_vectors(keys))
        except TransientError as error:
            self._degradations.add("ranked by words alone", error)
            return {}

    def get_section_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Section vectors; none while the index is away."""
        try:
            return self._breaker.call(lambda: self._index.get_section_vectors(keys))
        except TransientError as error:
            self._degradations.add("passages chosen by words alone", error)
            return {}

    def get_cached_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """Vectors under these text hashes; none while the index is away."""
        try:
            return self._breaker.call(lambda: self._index.get_cached_vectors(hashes))
        except TransientError:
            return {}  # they are computed anew: nothing is lost

    def save_section_vectors(
        self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector
    ) -> None:
        """Store vectors, or leave that to paging."""
        try:
            self._breaker.call(lambda: self._index.save_section_vectors(key, hashes, vectors))
        except TransientError:
            return  # the skill stays unpaged in the catalog


class DegradingGraph:
    """A `SkillGraph` for one query: links that cannot be read are none."""

    def __init__(
        self, graph: SkillGraph, breaker: CircuitBreaker, degradations: Degradations
    ) -> None:
        self._graph = graph
        self._breaker = breaker
        self._degradations = degradations

    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """Rows; none while the catalog is away."""
        return self._read_or_degrade(lambda: self._graph.get_adjacency(skill_ids, fan_out), {})

    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        """Links; none while the catalog is away."""
        return self._read_or_degrade(lambda: self._graph.get_links_among(skill_ids), [])

    def list_sources(self) -> list[Source]:
        """Sources; none while the catalog is away."""
        return self._read_or_degrade(self._graph.list_sources, [])

    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        """Entries; none while the catalog is away."""
        return self._read_or_degrade(lambda: self._graph.get_entries(skill_ids), [])

    def get_changes_since(self, epoch: int) -> CatalogChanges:
        """What changed after an epoch."""
        return self._breaker.call(lambda: self._graph.get_changes_since(epoch))

    def _read_or_degrade(self, read: Callable[[], T], nothing: T) -> T:
        try:
            return self._breaker.call(read)
        except TransientError as error:
            self._degradations.add("links and paths are not known", error)
            return nothing
