"""Embedded store of catalog and links in one SQLite file."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from graph.local.catalog import SqliteCatalog
from graph.local.database import Database
from graph.local.link_store import SqliteLinkStore
from graph.protocol import SkillGraph


class SqliteSkillGraph(SqliteCatalog, SqliteLinkStore, SkillGraph):
    """`graph.protocol.SkillGraph` on SQLite; safe to share among threads.

    One process may write; any number may read at the same time with `writable=False`.
    identity: value of `Database.read_identity`.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Open or create the file; raises the errors of `Database`."""
        super().__init__(Database(path, writable=writable))
        self.identity = self._database.read_identity()

    @override
    def close(self) -> None:
        self._database.close()
