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
from graph.protocol import Changes, Entry, Link, Row, SkillGraph, Source
from search.protocol import (
    Hit,
    SearchIndex,
    StoredRevision,
    Vector,
    VectorSearch,
    WordSearch,
)
from skills.record import RevisionKey

T = TypeVar("T")

_PAUSE_SECONDS = 3.0


class Outage:
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
                self._until, self._reason = time.monotonic() + _PAUSE_SECONDS, str(error)
            raise


@dataclass(slots=True)
class Outages:
    """Of the servers that a query reads from."""

    index: Outage = field(default_factory=Outage)
    graph: Outage = field(default_factory=Outage)


class Losses:
    """What one query had to do without, each told once."""

    def __init__(self) -> None:
        self.told: dict[str, None] = {}

    def tell(self, what: str, error: TransientError) -> None:
        """Note a loss and its reason."""
        self.told.setdefault(f"{what}: {error}")


class TolerantIndex:
    """A `SearchIndex` for one query: vectors that cannot be read are none.

    Searching and reading text raise, for the caller to find another way.
    """

    def __init__(self, index: SearchIndex, outage: Outage, losses: Losses) -> None:
        self._index = index
        self._outage = outage
        self._losses = losses

    def search_all(self, searches: Sequence[WordSearch | VectorSearch]) -> list[list[Hit]]:
        """The hits of each search."""
        return self._outage.call(lambda: self._index.search_all(searches))

    def read(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
        """Revisions as stored."""
        return self._outage.call(lambda: self._index.read(keys))

    def skill_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Skill vectors; none while the index is away."""
        try:
            return self._outage.call(lambda: self._index.skill_vectors(keys))
        except TransientError as error:
            self._losses.tell("ranked by words alone", error)
            return {}

    def section_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Section vectors; none while the index is away."""
        try:
            return self._outage.call(lambda: self._index.section_vectors(keys))
        except TransientError as error:
            self._losses.tell("passages chosen by words alone", error)
            return {}

    def cached_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """Vectors under these text hashes; none while the index is away."""
        try:
            return self._outage.call(lambda: self._index.cached_vectors(hashes))
        except TransientError:
            return {}  # they are computed anew: nothing is lost

    def put_section_vectors(
        self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector
    ) -> None:
        """Store vectors, or leave that to paging."""
        try:
            self._outage.call(lambda: self._index.put_section_vectors(key, hashes, vectors))
        except TransientError:
            return  # the skill stays unpaged in the catalog


class TolerantGraph:
    """A `SkillGraph` for one query: links that cannot be read are none."""

    def __init__(self, graph: SkillGraph, outage: Outage, losses: Losses) -> None:
        self._graph = graph
        self._outage = outage
        self._losses = losses

    def rows(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Row]:
        """Rows; none while the catalog is away."""
        return self._linked(lambda: self._graph.rows(skill_ids, fan_out), {})

    def links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        """Links; none while the catalog is away."""
        return self._linked(lambda: self._graph.links_among(skill_ids), [])

    def sources(self) -> list[Source]:
        """Sources; none while the catalog is away."""
        return self._linked(self._graph.sources, [])

    def entries(self, skill_ids: Sequence[str] | None = None) -> list[Entry]:
        """Entries; none while the catalog is away."""
        return self._linked(lambda: self._graph.entries(skill_ids), [])

    def changes(self, epoch: int) -> Changes:
        """What changed after an epoch."""
        return self._outage.call(lambda: self._graph.changes(epoch))

    def _linked(self, read: Callable[[], T], nothing: T) -> T:
        try:
            return self._outage.call(read)
        except TransientError as error:
            self._losses.tell("links and paths are not known", error)
            return nothing
