"""Part of the embedded store with sources, their groups and file signatures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from config.errors import UsageError
from graph.local.database import Database
from graph.local.rows import source_from_row
from graph.records import Source, SourceAccess


class SqliteSources:
    """Sources, for `graph.protocol.Catalog`."""

    _database: Database
    _sql: Mapping[str, str]

    def save_source(self, source: Source) -> None:
        """See `Catalog`."""
        with self._database.write() as db:
            taken = db.execute(
                "SELECT kind, root FROM sources WHERE source_id = ?", (source.source_id,)
            ).fetchone()
            if taken is not None and taken != (source.kind, source.root):
                raise UsageError(
                    f"source {source.source_id} is already {taken[0]} {taken[1]}: "
                    "choose another id, or remove that source first"
                )
            db.execute(
                self._sql["save_source"],
                asdict(source) | {"licences": json.dumps(source.licences)},
            )

    def list_sources(self) -> list[Source]:
        """See `Catalog`."""
        with self._database.read() as db:
            rows = db.execute(self._sql["sources"]).fetchall()
        return [source_from_row(row) for row in rows]

    def read_access(self) -> SourceAccess:
        """See `Catalog`."""
        with self._database.read() as db:
            rows = db.execute(self._sql["sources"]).fetchall()
            groups = db.execute("SELECT source_id, groups FROM source_groups").fetchall()
        return SourceAccess(
            [source_from_row(row) for row in rows],
            {source_id: tuple(json.loads(names)) for source_id, names in groups},
        )

    def set_source_groups(self, source_id: str, groups: Sequence[str]) -> None:
        """See `Catalog`."""
        with self._database.write() as db:
            db.execute(self._sql["next_epoch"]).fetchall()
            if groups:
                db.execute(
                    "INSERT OR REPLACE INTO source_groups VALUES (?, ?)",
                    (source_id, json.dumps(list(groups))),
                )
            else:
                db.execute("DELETE FROM source_groups WHERE source_id = ?", (source_id,))

    def delete_source(self, source_id: str) -> None:
        """See `Catalog`."""
        with self._database.write() as db:
            left = db.execute(
                "SELECT count(*) FROM skills WHERE source_id = ? AND seq > 0", (source_id,)
            ).fetchone()[0]
            if left:
                raise UsageError(f"source {source_id} still has {left} skills: remove them first")
            db.execute("DELETE FROM cursor WHERE source_id = ?", (source_id,))
            db.execute("DELETE FROM sources WHERE source_id = ?", (source_id,))

    def get_file_signatures(self, source_id: str) -> dict[str, str]:
        """See `Catalog`."""
        with self._database.read() as db:
            return dict(
                db.execute("SELECT path, signature FROM cursor WHERE source_id = ?", (source_id,))
            )

    def update_file_signatures(
        self, source_id: str, seen: Mapping[str, str], gone: Iterable[str]
    ) -> None:
        """See `Catalog`."""
        with self._database.write() as db:
            db.executemany(
                "DELETE FROM cursor WHERE source_id = ? AND path = ?",
                [(source_id, path) for path in gone],
            )
            db.executemany(
                "INSERT OR REPLACE INTO cursor VALUES (?, ?, ?)",
                [(source_id, path, signature) for path, signature in seen.items()],
            )
