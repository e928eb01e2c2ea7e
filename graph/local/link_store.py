"""Link store in SQLite: adjacency for queries, and the data that linking reads and writes."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from graph.local.rows import (
    LinkEnd,
    adjacency_from_ends,
    changes_from_rows,
    link_from_row,
    to_json_array,
)
from graph.local.statements import StatementRunner
from graph.local.transactions import dismiss_link, replace_links, restore_link
from graph.protocol import LinkStore
from graph.records import (
    Adjacency,
    DismissedLink,
    Link,
    LinkFeatures,
    LinkInput,
    LinkKey,
    LinkType,
    link_key,
)
from graph.row_codec import features_from_row
from graph.skill_names import normalise_name

_MAX_FOLLOWED_EPOCHS = 200
"""Maximum epochs of changes to read; after more, dropping all cached rows is faster."""


class SqliteLinkStore(StatementRunner, LinkStore):
    """`graph.protocol.LinkStore` in one SQLite file."""

    # -- readers
    @override
    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """Unchanged rows come from a cache."""
        cache = self._adjacency_cache
        with self._database.read() as db:
            epoch = self._evict_changed_rows(db)
            found, version = cache.get_many(skill_ids, fan_out)
            ends: dict[str, list[LinkEnd]] = {one: [] for one in skill_ids if one not in found}
            if ends:
                for row in db.execute(self._statements["adjacency"], (to_json_array(ends),)):
                    ends[row[0]].append(row[1:])
        read = {skill_id: adjacency_from_ends(own, fan_out) for skill_id, own in ends.items()}
        # Another thread may have read a later commit than this one.
        if epoch == cache.epoch:
            cache.put_many(read, fan_out, version)
        return found | read

    def _evict_changed_rows(self, db: sqlite3.Connection) -> int:
        """Drop cached rows that changed up to the commit of this transaction; return its epoch."""
        (epoch,) = db.execute(self._statements["meta_value"], ("epoch",)).fetchone()
        since = self._adjacency_cache.epoch
        if epoch - since > _MAX_FOLLOWED_EPOCHS:
            since = epoch  # drops all rows, which is faster than reading so many changes
        if epoch > self._adjacency_cache.epoch:
            changes = db.execute(self._statements["changes"], {"epoch": since})
            self._adjacency_cache.apply_changes(since, changes_from_rows(changes))
        return int(epoch)

    @override
    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        found: dict[str, list[tuple[Any, ...]]] = {skill_id: [] for skill_id in skill_ids}
        for asked, *values in self._read("links", (to_json_array(found),)):
            found[asked].append(tuple(values))
        return {
            skill_id: [link_from_row(row) for row in sorted(rows)]
            for skill_id, rows in found.items()
        }

    @override
    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        asked = {"ids": to_json_array(skill_ids)}
        return [link_from_row(row) for row in self._read("links_among", asked)]

    # -- linking
    @override
    def mark_for_linking(self, skill_ids: Sequence[str]) -> None:
        with self._transact() as transaction:
            asked = {"epoch": transaction.epoch, "ids": to_json_array(skill_ids)}
            transaction.run("mark_skills", asked)

    @override
    def get_input_version(self, which: LinkInput) -> str:
        rows = self._read("meta_value", (which.value,))
        if not rows:
            return ""
        version = rows[0][0]
        return version.decode() if isinstance(version, bytes) else str(version)

    @override
    def set_input_version(self, which: LinkInput, version: str) -> None:
        # As bytes, since the column makes a number of a text such as "0123".
        self._write("set_meta_value", (which.value, version.encode()))

    @override
    def dismiss_link(self, dismissed: DismissedLink) -> None:
        with self._transact() as transaction:
            dismiss_link(transaction, dismissed.key, dismissed.reason, dismissed.dismissed)

    @override
    def list_dismissed_links(self) -> list[DismissedLink]:
        return [
            DismissedLink(source, target, LinkType(kind), reason, dismissed)
            for source, target, kind, reason, dismissed in self._read("dismissed_links")
        ]

    @override
    def restore_link(self, key: LinkKey) -> bool:
        with self._transact() as transaction:
            return restore_link(transaction, link_key(*key))

    @override
    def list_awaiting_linking(self, limit: int) -> list[tuple[str, int]]:
        return [(skill_id, epoch) for skill_id, epoch in self._read("awaiting_linking", (limit,))]

    @override
    def get_link_features(self, skill_ids: Sequence[str]) -> dict[str, LinkFeatures]:
        rows = self._read("link_features", (to_json_array(skill_ids),))
        return {row[0]: features_from_row(row) for row in rows}

    @override
    def find_by_name(self, source_id: str, names: Sequence[str]) -> dict[str, list[str]]:
        keys = sorted({normalise_name(name) for name in names})
        asked = {"source_id": source_id, "names": to_json_array(keys)}
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key, skill_id in self._read("find_by_name", asked):
            found[key].append(skill_id)
        return dict(found)

    @override
    def get_owned_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        asked = (to_json_array(skill_ids),)
        with self._database.read() as db:
            owners = db.execute(self._statements["published"], asked).fetchall()
            rows = db.execute(self._statements["owned"], asked).fetchall()
        found: dict[str, list[Link]] = {skill_id: [] for (skill_id,) in owners}
        for row in rows:
            found.setdefault(row[0], []).append(link_from_row(row))
        return found

    @override
    def min_link_weight(
        self, kind: LinkType, count: int, skill_ids: Sequence[str]
    ) -> dict[str, float]:
        asked = {"type": kind.value, "count": count, "ids": to_json_array(skill_ids)}
        return dict(self._read("min_link_weight", asked))

    @override
    def replace_links(
        self, links: Mapping[str, Sequence[Link]], marks: Sequence[tuple[str, int]]
    ) -> None:
        with self._transact() as transaction:
            replace_links(transaction, links)
            transaction.run_each("clear_mark", marks)
