"""View of the catalog for readers who may not see the skills of all sources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar, cast

from graph.entry_filter import EntryCount, EntryFilter
from graph.protocol import SkillGraph
from graph.records import (
    NO_LINKS,
    Adjacency,
    CatalogChanges,
    CatalogEntry,
    DismissedLink,
    Link,
    LinkType,
    SafetyRecord,
    SkillState,
    Source,
    SourceAccess,
)
from skills.access import Reader
from skills.record import get_source_id

ALL_NEIGHBOURS = (1 << 31) - 1
"""Fan-out that cuts no row, since hidden neighbours must not displace visible neighbours."""

T = TypeVar("T", SafetyRecord, CatalogEntry)


def find_visible_sources(
    access: SourceAccess, reader: Reader, default_groups: Collection[str]
) -> frozenset[str] | None:
    """Return the ids of the sources whose skills a reader may see; None if it may see all.

    default_groups: groups of sources without their own. None also covers data of removed sources,
    which are not in the catalog any more.
    """
    if reader.sees_everything:
        return None
    sees_others = reader.shares(default_groups)
    hidden = {name for name, groups in access.groups.items() if not reader.shares(groups)}
    if sees_others and not hidden:
        return None
    return frozenset(
        one.source_id
        for one in access.sources
        if one.source_id not in hidden and (sees_others or one.source_id in access.groups)
    )


def restrict_graph(
    graph: SkillGraph, reader: Reader, default_groups: Collection[str]
) -> SkillGraph:
    """Return a read-only view of the catalog for a reader; the catalog itself if it sees all."""
    if reader.sees_everything:
        return graph
    visible = find_visible_sources(graph.read_access(), reader, default_groups)
    # VisibleGraph has only methods that read.
    return graph if visible is None else cast(SkillGraph, VisibleGraph(graph, visible))


class VisibleGraph:
    """A read-only `SkillGraph` with only the skills of the sources `visible`.

    Skills of other sources, and links that start, end or are owned there, are left out.
    """

    def __init__(self, graph: SkillGraph, visible: frozenset[str]) -> None:
        self._graph = graph
        self._visible = visible

    def _sees(self, skill_id: str) -> bool:
        return get_source_id(skill_id) in self._visible

    # -- sources
    def read_access(self) -> SourceAccess:
        """See `Catalog`."""
        access = self._graph.read_access()
        return SourceAccess(
            [one for one in access.sources if one.source_id in self._visible],
            {name: groups for name, groups in access.groups.items() if name in self._visible},
        )

    def list_sources(self) -> list[Source]:
        """See `Catalog`."""
        return self.read_access().sources

    def count_states_by_source(self, source_ids: Sequence[str]) -> dict[str, dict[SkillState, int]]:
        """See `Catalog`; a hidden source has no skills."""
        counted = self._graph.count_states_by_source(source_ids)
        return {name: one if name in self._visible else {} for name, one in counted.items()}

    # -- skills
    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        """See `Catalog`."""
        return self._select(self._graph.get_entries(skill_ids))

    def get_safety_records(self, skill_ids: Sequence[str]) -> list[SafetyRecord]:
        """See `Catalog`."""
        return self._select(self._graph.get_safety_records(skill_ids))

    def _select(self, records: Iterable[T]) -> list[T]:
        return [one for one in records if self._sees(one.skill_id)]

    def list_entries(self, selection: EntryFilter, after: str, limit: int) -> list[CatalogEntry]:
        """See `Catalog`; all entries of a hidden source are skipped in one step."""
        found: list[CatalogEntry] = []
        while len(found) < limit:
            batch = self._graph.list_entries(selection, after, limit)
            found += self._select(batch)
            if len(batch) < limit:
                break
            last = batch[-1].skill_id
            # `;` follows `:`, so this sorts after all skills of the source.
            after = last if self._sees(last) else f"{get_source_id(last)};"
        return found[:limit]

    def count_entries(self) -> list[EntryCount]:
        """See `Catalog`."""
        return [one for one in self._graph.count_entries() if one.source_id in self._visible]

    def get_rules_version(self) -> int:
        """See `Catalog`."""
        return self._graph.get_rules_version()

    def get_epoch(self) -> int:
        """See `Catalog`."""
        return self._graph.get_epoch()

    def get_changes_since(self, epoch: int) -> CatalogChanges:
        """See `Catalog`."""
        changes = self._graph.get_changes_since(epoch)
        return CatalogChanges(
            changes.epoch,
            {name: seq for name, seq in changes.pointers.items() if self._sees(name)},
            frozenset(filter(self._sees, changes.relinked)),
        )

    # -- links
    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """See `LinkStore`; totals are over the visible links."""
        rows = self._graph.get_adjacency(skill_ids, ALL_NEIGHBOURS)
        return {name: self._restrict(name, row, fan_out) for name, row in rows.items()}

    def _restrict(self, skill_id: str, row: Adjacency, fan_out: int) -> Adjacency:
        if not self._sees(skill_id):
            return NO_LINKS
        kept = tuple(one for one in row.neighbours if self._sees(one.skill_id))
        totals: defaultdict[tuple[LinkType, bool], float] = defaultdict(float)
        for one in kept:
            totals[one.type, one.forward] += one.weight
        return Adjacency(kept[:fan_out], dict(totals))

    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """See `LinkStore`."""
        found = self._graph.get_links(skill_ids)
        return {skill_id: list(self._select_links(links)) for skill_id, links in found.items()}

    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        """See `LinkStore`."""
        return list(self._select_links(self._graph.get_links_among(skill_ids)))

    def _select_links(self, links: Iterable[Link]) -> Iterator[Link]:
        return (one for one in links if all(map(self._sees, (one.owner, *one.ends))))

    def list_dismissed_links(self) -> list[DismissedLink]:
        """See `LinkStore`."""
        links = self._graph.list_dismissed_links()
        return [one for one in links if self._sees(one.source) and self._sees(one.target)]
