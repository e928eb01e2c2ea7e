"""Search of the library for people: by words as they are typed and by filters, with counts of
values.

Queries of agents run all stages of ranking. Here a person looks for skills by words in them, which
the search engine alone answers within milliseconds.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graph.entry_filter import EntryCount, EntryFilter, HasScripts
from graph.protocol import Catalog, SkillGraph
from graph.records import CatalogEntry
from graph.visible_graph import VisibleGraph
from search.protocol import Filters, LexicalSearch, SearchIndex
from search.text.tokens import tokenize
from skills.unicode_normalization import normalize
from workers.library.entry_policy import EntryPolicy

MAX_FOUND = 500
"""Maximum of skills that a search by words finds."""

MAX_TEXT_CHARACTERS = 500

FACETS = {
    "source": "source_id",
    "state": "state",
    "language": "language",
    "licence": "licence",
    "level": "safety_level",
    "has_scripts": "has_scripts",
    "embedded": "embedded",
}
"""Names of the facets, and of the fields of a filter and of a count that they are about."""

_COUNTS_SECONDS = 5.0
_COUNTS_REST = 20
"""Time for which counts of a changing library are kept, as a multiple of the time that counting
took, so that they are not counted for each page."""
_EXTRA_HITS = 100
_MAX_VALUES = 100
_MAX_PLACE_DIGITS = 12
_UNFINISHED = re.compile(r"[^\W_]{2,40}$")


class FacetValue(NamedTuple):
    """A value of a facet, and how many skills have it that match all other filters."""

    value: str
    skills: int


@dataclass(frozen=True, slots=True)
class LibraryPage:
    """A page of skills: by relevance for a search by words, else by id.

    total: number of matching skills; is_cut: whether there may be more, as a search stops at
    `MAX_FOUND`. facets: by name, the values with most skills first; levels count skills of at least
    that level. after: the `after` of the next page, "" on the last page.
    """

    entries: Sequence[CatalogEntry]
    total: int
    is_cut: bool
    facets: dict[str, list[FacetValue]]
    after: str


class LibrarySearch:
    """Searches a library; threads may share it.

    get_stores: returns the catalog and the search index. get_policy: returns the current policy.
    """

    def __init__(
        self,
        get_stores: Callable[[], tuple[SkillGraph, SearchIndex]],
        get_policy: Callable[[], EntryPolicy],
    ) -> None:
        self._get_stores = get_stores
        self._get_policy = get_policy
        self._lock = threading.Lock()
        self._counts: list[EntryCount] = []
        self._counted_epoch, self._counted_at = -1, -_COUNTS_SECONDS
        self._count_seconds = 0.0

    def find(
        self,
        text: str,
        wanted: EntryFilter,
        after: str,
        limit: int,
        *,
        visible: frozenset[str] | None,
        include_withheld: bool,
    ) -> LibraryPage:
        """Find skills.

        text: words, of which the last may be unfinished; "" for all skills. after: of the previous
        page, "" for the first. visible: the sources whose skills exist for the reader, None for
        all. include_withheld: whether a search by words finds skills that the policy withholds.
        """
        if text.strip():
            found, is_cut = self._find_entries(text, visible, include_withheld)
            return _cut_page(found, is_cut, wanted, after, limit)
        return self._browse(wanted, after, limit, visible)

    def _browse(
        self, wanted: EntryFilter, after: str, limit: int, visible: frozenset[str] | None
    ) -> LibraryPage:
        graph, _ = self._get_stores()
        counts = self._count(graph)
        seen = graph if visible is None else VisibleGraph(graph, visible)
        entries = seen.list_entries(wanted, after, limit + 1)
        if visible is not None:
            counts = [one for one in counts if one.source_id in visible]
        return LibraryPage(
            entries=entries[:limit],
            total=sum(one.entries for one in counts if not _find_mismatches(wanted, one)),
            is_cut=False,
            facets=count_facets(counts, wanted),
            after=entries[limit - 1].skill_id if len(entries) > limit else "",
        )

    def _count(self, graph: Catalog) -> list[EntryCount]:
        """Return counts of the catalog. They are counted again when its epoch has changed, and
        after a while: skills that wait or fail for the first time change no epoch."""
        epoch, now = graph.get_epoch(), time.monotonic()
        with self._lock:
            is_changed = epoch != self._counted_epoch
            rest = _COUNTS_REST * self._count_seconds if is_changed else _COUNTS_SECONDS
            if now > self._counted_at + min(rest, _COUNTS_SECONDS):
                self._counts = graph.count_entries()
                self._counted_epoch, self._counted_at = epoch, now
                self._count_seconds = time.monotonic() - now
            return self._counts

    def _find_entries(
        self, text: str, visible: frozenset[str] | None, include_withheld: bool
    ) -> tuple[list[CatalogEntry], bool]:
        """Return the published skills with any of the words, best first, and whether there may be
        more."""
        if visible is not None and not visible:
            return [], False
        text = text[:MAX_TEXT_CHARACTERS]
        unfinished = _UNFINISHED.search(normalize("NFKC", text).lower())
        search = LexicalSearch(
            terms=dict.fromkeys(tokenize(text), 1.0),
            limit=MAX_FOUND + _EXTRA_HITS,
            # Filtered in the engine, so that hidden skills take no place among the hits.
            filters=Filters(source=tuple(sorted(visible or ()))),
            prefix=unfinished[0] if unfinished else "",
        )
        graph, index = self._get_stores()
        [hits] = index.search_many([search])
        # The index has superseded revisions for a while: only the published ones count.
        ids = list({hit.key.skill_id for hit in hits})
        entries = {one.skill_id: one for one in graph.get_entries(ids)}
        published = [
            entry
            for hit in hits
            if (entry := entries.get(hit.key.skill_id)) is not None and entry.seq == hit.key.seq
        ]
        if not include_withheld:
            results = self._get_policy().judge(published)
            published = [one for one in published if results[one.skill_id].violation is None]
        is_cut = len(hits) == search.limit or len(published) > MAX_FOUND
        return published[:MAX_FOUND], is_cut


def _cut_page(
    found: Sequence[CatalogEntry], is_cut: bool, wanted: EntryFilter, after: str, limit: int
) -> LibraryPage:
    """Return the page of a search by words that begins at the place `after`."""
    counts = [_count_one(entry) for entry in found]
    pairs = zip(found, counts, strict=True)
    matching = [entry for entry, one in pairs if not _find_mismatches(wanted, one)]
    is_place = after.isascii() and after.isdigit() and len(after) <= _MAX_PLACE_DIGITS
    first = int(after) if is_place else 0
    return LibraryPage(
        entries=matching[first : first + limit],
        total=len(matching),
        is_cut=is_cut,
        facets=count_facets(counts, wanted),
        after=str(first + limit) if len(matching) > first + limit else "",
    )


def count_facets(counts: Iterable[EntryCount], wanted: EntryFilter) -> dict[str, list[FacetValue]]:
    """Count the values of each facet among the entries that match all other filters."""
    tallies: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
    for one in counts:
        mismatches = _find_mismatches(wanted, one)
        if len(mismatches) > 1:
            continue
        for name in mismatches or FACETS:
            for value in _get_values(one, name):
                tallies[name][value] += one.entries
    facets = {
        name: [FacetValue(*pair) for pair in tally.most_common(_MAX_VALUES)]
        for name, tally in tallies.items()
    }
    facets["level"].sort()
    return facets


def _find_mismatches(wanted: EntryFilter, one: EntryCount) -> list[str]:
    """Return the facets by which entries with these values do not match. A wanted level is the
    lowest."""
    values = one._asdict() | {
        "safety_level": min(one.safety_level, wanted.safety_level or 0),
        "has_scripts": HasScripts.of(one.has_scripts),
    }
    return [
        facet
        for facet, field in FACETS.items()
        if getattr(wanted, field) not in (None, values[field])
    ]


def _get_values(one: EntryCount, name: str) -> Sequence[str]:
    if name == "level":
        return [str(level) for level in range(1, one.safety_level + 1)]
    if name == "source":
        return [one.source_id]
    if name == "has_scripts":
        return [HasScripts.of(one.has_scripts)]
    if name == "embedded":
        return ["true" if one.embedded else "false"]
    value = str(getattr(one, name))
    return [value] if value else []


def _count_one(entry: CatalogEntry) -> EntryCount:
    return EntryCount(
        entry.source_id,
        entry.state,
        entry.language,
        entry.licence,
        entry.safety_level,
        entry.has_scripts,
        entry.embedded,
        entries=1,
    )
