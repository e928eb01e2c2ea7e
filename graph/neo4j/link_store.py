"""Link store on Neo4j: adjacency for queries, and the data that linking reads and writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter

from typing_extensions import override

from graph.neo4j import transactions
from graph.neo4j.rows import (
    adjacency_from_row,
    features_from_rows,
    index_key,
    is_complete,
    links_from_rows,
)
from graph.neo4j.statements import READ_BATCH, StatementRunner
from graph.protocol import LinkStore
from graph.records import (
    NO_LINKS,
    Adjacency,
    DismissedLink,
    Link,
    LinkFeatures,
    LinkInput,
    LinkKey,
    LinkType,
    link_key,
)
from graph.skill_names import normalise_name
from skills.batches import batches

_SKILLS_PER_READ = 1_000
_MARKS_PER_WRITE = 1_000
_LINKS_PER_WRITE = 1_000
_OWNERS_PER_WRITE = 200


class Neo4jLinkStore(StatementRunner, LinkStore):
    """`graph.protocol.LinkStore` on Neo4j."""

    # -- readers
    @override
    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """Cached rows need no round trip. A row stays cached until `get_changes_since` or a write
        in this process names it."""
        found, version = self._adjacency_cache.get_many(skill_ids, fan_out)
        missing = [skill_id for skill_id in dict.fromkeys(skill_ids) if skill_id not in found]
        if missing:
            read = dict.fromkeys(missing, NO_LINKS)
            for skill_id, ends, totals in self._read("adjacency", ids=missing, fan_out=fan_out):
                read[skill_id] = adjacency_from_row(ends, totals)
            self._adjacency_cache.put_many(read, fan_out, version)
            found |= read
        return found

    @override
    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        found: dict[str, list[Link]] = {skill_id: [] for skill_id in skill_ids}
        for ids in batches(list(found), _SKILLS_PER_READ):
            for skill_id, links in self._read("links", ids=ids):
                found[skill_id] = links_from_rows(links)
        for links in found.values():
            links.sort(key=attrgetter("owned_key"))
        return found

    @override
    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        ids = list(dict.fromkeys(skill_ids))
        [(links,)] = self._read("links_among", ids=ids)
        return sorted(links_from_rows(links), key=attrgetter("source", "target", "type", "owner"))

    # -- linking
    @override
    def mark_for_linking(self, skill_ids: Sequence[str]) -> None:
        for ids in batches(sorted(set(skill_ids)), _MARKS_PER_WRITE):
            self._transact(partial(transactions.mark_for_linking, skill_ids=ids))

    @override
    def get_input_version(self, which: LinkInput) -> str:
        return str(self._read("input_version", key=which.value)[0][0])

    @override
    def set_input_version(self, which: LinkInput, version: str) -> None:
        self._write("set_input_version", key=which.value, version=version)

    @override
    def dismiss_link(self, dismissed: DismissedLink) -> None:
        touched = self._transact_with_locks(partial(transactions.dismiss_link, dismissed=dismissed))
        self._adjacency_cache.evict(touched)

    @override
    def list_dismissed_links(self) -> list[DismissedLink]:
        rows = self._read("dismissed_links")
        found = [
            DismissedLink(source, target, LinkType[kind], reason, dismissed)
            for source, target, kind, reason, dismissed in filter(is_complete, rows)
        ]
        return sorted(found, key=lambda one: (one.source, one.target, one.type))

    @override
    def restore_link(self, key: LinkKey) -> bool:
        key = link_key(*key)
        return self._transact_with_locks(partial(transactions.restore_link, key=key))

    @override
    def list_awaiting_linking(self, limit: int) -> list[tuple[str, int]]:
        (found,) = self._read("awaiting_linking", limit=limit)
        return list(zip(*found, strict=True))

    @override
    def get_link_features(self, skill_ids: Sequence[str]) -> dict[str, LinkFeatures]:
        found: dict[str, LinkFeatures] = {}
        for ids in batches(list(dict.fromkeys(skill_ids)), _SKILLS_PER_READ):
            found |= features_from_rows(self._read("link_features", ids=ids)[0][0])
        return found

    @override
    def find_by_name(self, source_id: str, names: Sequence[str]) -> dict[str, list[str]]:
        keys = {index_key(name): name for name in map(normalise_name, names)}
        found: defaultdict[str, list[str]] = defaultdict(list)
        for asked in batches(sorted(keys), READ_BATCH):
            rows = self._read("find_by_name", source_id=source_id, keys=asked)
            for key, skill_id in filter(is_complete, rows):
                found[keys[key]].append(skill_id)
        return dict(found)

    @override
    def get_owned_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        found: dict[str, list[Link]] = {}
        for ids in batches(list(dict.fromkeys(skill_ids)), _SKILLS_PER_READ):
            published = self._read("published", ids=ids)[0][0]
            found |= {skill_id: [] for skill_id in published}
            for owner, links in self._read("owned", ids=published):
                found[owner] = links_from_rows([owner, *values] for values in links)
        return found

    @override
    def min_link_weight(
        self, kind: LinkType, count: int, skill_ids: Sequence[str]
    ) -> dict[str, float]:
        found: dict[str, float] = {}
        for ids in batches(list(dict.fromkeys(skill_ids)), READ_BATCH):
            rows = self._read(f"min_link_weight_{kind}", ids=ids, count=count)
            found.update((owner, float(weight)) for owner, weight in filter(is_complete, rows))
        return found

    @override
    def replace_links(
        self, links: Mapping[str, Sequence[Link]], marks: Sequence[tuple[str, int]]
    ) -> None:
        """Replaces the links of one owner in one transaction. Marks are cleared last, so that an
        interrupted call is repeated as a whole."""
        for some in _split_by_owner(links):
            touched = self._transact_with_locks(partial(transactions.replace_links, links=some))
            self._adjacency_cache.evict(touched)
        for rows in batches(sorted(marks), _MARKS_PER_WRITE):
            self._write("clear_marks", rows=[list(row) for row in rows])


def _split_by_owner(links: Mapping[str, Sequence[Link]]) -> Iterable[dict[str, Sequence[Link]]]:
    """Yield the owners in order, in batches with limited numbers of owners and links."""
    batch: dict[str, Sequence[Link]] = {}
    size = 0
    for owner in sorted(links):
        if batch and (
            len(batch) == _OWNERS_PER_WRITE or size + len(links[owner]) > _LINKS_PER_WRITE
        ):
            yield batch
            batch, size = {}, 0
        batch[owner] = links[owner]
        size += len(links[owner])
    if batch:
        yield batch
