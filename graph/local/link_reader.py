"""Part of the embedded store from which queries read links."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from graph.adjacency_cache import AdjacencyCache
from graph.local.database import Database
from graph.local.rows import LinkEnd, adjacency_from_ends, link_from_row, to_json_array
from graph.records import Adjacency, CatalogChanges, Link

_MAX_FOLLOWED_EPOCHS = 200
"""Maximum epochs of changes to read; after more, dropping all cached rows is faster."""


def read_changes(db: sqlite3.Connection, sql: Mapping[str, str], epoch: int) -> CatalogChanges:
    """Read the change feed after an epoch."""
    now, pointers, rows = epoch, {}, set()
    for kind, skill_id, number in db.execute(sql["changes"], {"epoch": epoch}):
        if kind == 0:
            now = number
        elif kind == 1:
            pointers[skill_id] = number
        else:
            rows.add(skill_id)
    return CatalogChanges(now, pointers, frozenset(rows))


class SqliteLinkReader:
    """Reading of links, for `graph.protocol.LinkStore`."""

    _database: Database
    _sql: Mapping[str, str]
    _adjacency: AdjacencyCache

    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """See `LinkStore`; unchanged rows come from a cache."""
        with self._database.read() as db:
            epoch = self._evict_changed_rows(db)
            found, version = self._adjacency.get_many(skill_ids, fan_out)
            ends: dict[str, list[LinkEnd]] = {one: [] for one in skill_ids if one not in found}
            if ends:
                for row in db.execute(self._sql["adjacency"], (to_json_array(ends),)):
                    ends[row[0]].append(row[1:])
        read = {skill_id: adjacency_from_ends(own, fan_out) for skill_id, own in ends.items()}
        # Another thread may have read a later commit than this one.
        if epoch == self._adjacency.epoch:
            self._adjacency.put_many(read, fan_out, version)
        return found | read

    def _evict_changed_rows(self, db: sqlite3.Connection) -> int:
        """Drop cached rows that changed up to the commit of this transaction; return its epoch."""
        (epoch,) = db.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
        since = self._adjacency.epoch
        if epoch - since > _MAX_FOLLOWED_EPOCHS:
            since = epoch  # drops all rows, which is faster than reading so many changes
        if epoch > self._adjacency.epoch:
            self._adjacency.apply_changes(since, read_changes(db, self._sql, since))
        return int(epoch)

    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """See `LinkStore`."""
        found: dict[str, list[tuple[Any, ...]]] = {skill_id: [] for skill_id in skill_ids}
        with self._database.read() as db:
            for asked, *values in db.execute(self._sql["links"], (to_json_array(found),)):
                found[asked].append(tuple(values))
        return {
            skill_id: [link_from_row(row) for row in sorted(rows)]
            for skill_id, rows in found.items()
        }

    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        """See `LinkStore`."""
        with self._database.read() as db:
            asked = {"ids": to_json_array(skill_ids)}
            return [link_from_row(row) for row in db.execute(self._sql["links_among"], asked)]
