"""Links on Neo4j: rows for queries, and all that linking reads and writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from graph.neo4j import transactions as writes
from graph.neo4j.base import READ_BATCH, Neo4jStore, batches
from graph.neo4j.transactions import index_key
from graph.packing import unpack_mentions, unpack_vector
from graph.protocol import Adjacency, Link, LinkFeatures, LinkType, Neighbour
from graph.skill_names import normalise_name

_FACTS_AT_ONCE = 1_000
_LINKED_AT_ONCE = 1_000
_LINKS_AT_ONCE = 1_000
_OWNERS_AT_ONCE = 200

_TYPES = {kind.name: kind for kind in LinkType}
"""By relationship type: thousands of ends a query are too many for the enum's own lookup."""


class Neo4jLinks(Neo4jStore):
    """The part of `graph.protocol.SkillGraph` about links."""

    # -- readers
    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """Rows of these skills, at most `fan_out` neighbours each; every id asked has one.

        One round trip, or none: rows that were read before are kept until `changes` or a writer
        in this process names them.
        """
        found, version = self._adjacency_cache.get_many(skill_ids, fan_out)
        missing = [skill_id for skill_id in dict.fromkeys(skill_ids) if skill_id not in found]
        if missing:
            read = dict.fromkeys(missing, _EMPTY)
            for skill_id, ends, totals in self._read("adjacency", ids=missing, fan_out=fan_out):
                read[skill_id] = _row(ends, totals)
            self._adjacency_cache.put_many(read, fan_out, version)
            found |= read
        return found

    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """By skill, every link that starts or ends at it, or that it owns."""
        found: dict[str, list[Link]] = {skill_id: [] for skill_id in skill_ids}
        for ids in batches(list(found), _FACTS_AT_ONCE):
            for skill_id, links in self._read("links", ids=list(ids)):
                found[skill_id] = [_link(*values) for values in links]
        for links in found.values():
            links.sort(key=_by_owner)
        return found

    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        """Every link that starts and ends at one of these skills. One round trip."""
        rows = self._read("links_among", ids=list(dict.fromkeys(skill_ids)))
        return sorted((_link(*row) for row in rows), key=_by_source)

    # -- linking
    def list_awaiting_linking(self, limit: int) -> list[tuple[str, int]]:
        """Skills marked for linking with the epoch of their mark, oldest first."""
        (found,) = self._read("awaiting_linking", limit=limit)
        return list(zip(*found, strict=True))

    def get_link_features(self, skill_ids: Sequence[str]) -> dict[str, LinkFeatures]:
        """What linking needs of these published skills; others are left out."""
        found = {}
        for ids in batches(list(dict.fromkeys(skill_ids)), _FACTS_AT_ONCE):
            for row in self._read("link_features", ids=list(ids))[0][0]:
                skill_id, source_id, path, name, signature, described, mentions = row
                vectors = (unpack_vector(signature), unpack_vector(described))
                mentioned = unpack_mentions(mentions)
                facts = LinkFeatures(skill_id, source_id, path, name or "", *vectors, mentioned)
                found[skill_id] = facts
        return found

    def find_by_name(self, source_id: str, names: Sequence[str]) -> dict[str, list[str]]:
        """Published skills of a source by normalised name; names nobody has are left out."""
        keys = _keys(names)
        found: defaultdict[str, list[str]] = defaultdict(list)
        for asked in batches(sorted(keys), READ_BATCH):
            for key, skill_id in self._read("find_by_name", source_id=source_id, keys=list(asked)):
                found[keys[key]].append(skill_id)
        return dict(found)

    def find_mentioning(self, source_id: str, names: Sequence[str]) -> list[str]:
        """Published skills of a source that mention any of these normalised names."""
        rows = self._read("find_mentioning", source_id=source_id, keys=sorted(_keys(names)))
        return [skill_id for (skill_id,) in rows]

    def get_owned_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """The links that these published skills own; others are left out."""
        found: dict[str, list[Link]] = {}
        for ids in batches(list(dict.fromkeys(skill_ids)), _FACTS_AT_ONCE):
            published = self._read("published", ids=list(ids))[0][0]
            found |= {skill_id: [] for skill_id in published}
            for owner, links in self._read("owned", ids=published):
                found[owner] = [_link(owner, *values) for values in links]
        return found

    def min_link_weight(
        self, kind: LinkType, count: int, skill_ids: Sequence[str]
    ) -> dict[str, float]:
        """The weight of the lightest link of a type that each of these skills owns, of those that
        own at least `count`."""
        found: dict[str, float] = {}
        for ids in batches(list(dict.fromkeys(skill_ids)), READ_BATCH):
            rows = self._read(f"min_link_weight_{kind}", ids=list(ids), count=count)
            found.update((owner, float(weight)) for owner, weight in rows)
        return found

    def replace_links(
        self, links: Mapping[str, Sequence[Link]], marks: Sequence[tuple[str, int]]
    ) -> None:
        """Replace all links each owner has, and clear the marks that have not moved since.

        An owner that is no longer published gets none. A link whose other end was withdrawn in
        the meantime is left out, and its owner marked again. Of several with one (owner, source,
        target, type) the heaviest is kept, of those the one whose evidence sorts first.

        What one skill owns is replaced in one transaction. Marks are cleared last: whatever ends
        this half-way, all of it is done again.
        """
        for some in _portions(links):
            touched = self._transact_with_locks(partial(writes.replace_links, links=some))
            self._adjacency_cache.evict(touched)
        for rows in batches(sorted(marks), _LINKED_AT_ONCE):
            self._write("clear_marks", rows=[list(row) for row in rows])


def _portions(links: Mapping[str, Sequence[Link]]) -> Iterable[dict[str, Sequence[Link]]]:
    """The owners in order, as many at a time as their links allow."""
    portion: dict[str, Sequence[Link]] = {}
    size = 0
    for owner in sorted(links):
        if portion and (
            len(portion) == _OWNERS_AT_ONCE or size + len(links[owner]) > _LINKS_AT_ONCE
        ):
            yield portion
            portion, size = {}, 0
        portion[owner] = links[owner]
        size += len(links[owner])
    if portion:
        yield portion


def _link(owner: str, source: str, target: str, kind: str, weight: float, evidence: str) -> Link:
    return Link(owner, source, target, _TYPES[kind], weight, evidence)


def _by_owner(link: Link) -> tuple[str, ...]:
    return (link.owner, link.source, link.target, link.type)


def _by_source(link: Link) -> tuple[str, ...]:
    return (link.source, link.target, link.type, link.owner)


def _keys(names: Iterable[str]) -> dict[str, str]:
    """Normalised names by the keys that they are indexed under."""
    return {index_key(name): name for name in map(normalise_name, names)}


_EMPTY = Adjacency((), {})


def _row(ends: Iterable[Sequence[Any]], totals: Iterable[Sequence[Any]]) -> Adjacency:
    return Adjacency(
        tuple(
            Neighbour(other, _TYPES[kind], forward, weight) for other, kind, forward, weight in ends
        ),
        {(_TYPES[kind], forward): total for kind, forward, total in totals},
    )
