"""Index and history for a reader who may see only the skills of some sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from search.protocol import (
    Filters,
    Hit,
    Search,
    SearchIndex,
    StoredRevision,
    Vector,
)
from search.revision_history import KeptRevision, Pin, RevisionHistory
from skills.record import RevisionKey, get_source_id


class VisibleIndex:
    """A `SearchIndex` for reading, limited to the revisions of the sources in `visible`.

    Searches filter by source inside the engine, so that a hidden skill takes no place among the
    hits.
    """

    def __init__(self, index: SearchIndex, visible: frozenset[str]) -> None:
        self._index = index
        self._visible = visible
        self._all_visible = tuple(sorted(visible))

    def search_many(self, searches: Sequence[Search]) -> list[list[Hit]]:
        """See `SearchIndex`."""
        narrowed = [self._narrow(one) for one in searches]
        found = iter(self._index.search_many([one for one in narrowed if one is not None]))
        return [[] if one is None else next(found) for one in narrowed]

    def _narrow(self, search: Search) -> Search | None:
        """Return the search limited to visible sources; None if it asks for no visible source."""
        asked = search.filters.source
        source = tuple(filter(self._visible.__contains__, asked)) if asked else self._all_visible
        if not source:
            return None
        filters: Filters = replace(search.filters, source=source)
        return replace(search, filters=filters)

    def _select(self, keys: Iterable[RevisionKey]) -> list[RevisionKey]:
        return [key for key in keys if get_source_id(key.skill_id) in self._visible]

    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
        """See `SearchIndex`."""
        return self._index.get_revisions(self._select(keys))

    def get_skill_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> Mapping[RevisionKey, tuple[float, float]]:
        """See `SearchIndex`."""
        return self._index.get_skill_cosines(self._select(keys), vector)

    def get_section_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """See `SearchIndex`."""
        return self._index.get_section_vectors(self._select(keys))

    def get_section_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> Mapping[RevisionKey, float]:
        """See `SearchIndex`."""
        return self._index.get_section_cosines(self._select(keys), vector)

    def get_cached_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """See `SearchIndex`. Not limited: callers have the texts of these vectors."""
        return self._index.get_cached_vectors(hashes)

    def save_section_vectors(
        self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector
    ) -> None:
        """See `SearchIndex`; a query stores the vectors that it had to compute."""
        self._index.save_section_vectors(key, hashes, vectors)


class VisibleHistory:
    """A `RevisionHistory` for reading, limited to the skills of the sources in `visible`."""

    def __init__(self, history: RevisionHistory, visible: frozenset[str]) -> None:
        self._history = history
        self._visible = visible

    def _sees(self, skill_id: str) -> bool:
        return get_source_id(skill_id) in self._visible

    def list_revisions(self, skill_id: str) -> list[KeptRevision]:
        """See `RevisionHistory`."""
        found = self._history.list_revisions(skill_id)
        return found if self._sees(skill_id) else []

    def get_pins(self, skill_ids: Sequence[str] | None = None) -> dict[str, Pin]:
        """See `RevisionHistory`."""
        pins = self._history.get_pins(skill_ids)
        return {skill_id: pin for skill_id, pin in pins.items() if self._sees(skill_id)}
