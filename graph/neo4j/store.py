"""The catalog and the links on a Neo4j server: the distributed `SkillGraph`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from config.errors import SkillbusError
from config.settings import ServerSettings
from graph.neo4j import migrations
from graph.neo4j.catalog import Neo4jCatalog
from graph.neo4j.client import Neo4jClient
from graph.neo4j.links import Neo4jLinks
from graph.neo4j.passages import Neo4jPassages
from graph.neo4j.transactions import Withdrawal

CACHED_ROWS = 8_192


class Neo4jSkillGraph(Neo4jCatalog, Neo4jLinks, Neo4jPassages):
    """`graph.protocol.SkillGraph` on Neo4j; safe to share among threads and processes.

    Any number of processes may write. A call raises TransientError when the server is away, busy
    or slower than `servers.timeout_seconds`, and UsageError when settings or the schema are wrong.
    """

    def __init__(
        self, settings: ServerSettings, *, writable: bool = True, cached_rows: int = CACHED_ROWS
    ) -> None:
        """Connects on the first call. cached_rows: rows of links kept in memory, about 4 kB
        each."""
        super().__init__(Neo4jClient(settings), writable=writable, cached_rows=cached_rows)
        self._passages = settings.neo4j_passages

    def migrate(self) -> None:
        """Lay the database out, or bring an older layout up to date; who writes calls it once.

        Safe with any number of processes at once. Raises UsageError for a layout that a newer
        skillbus has made.
        """
        migrations.migrate(self._server)
        self._checked = True

    def health(self) -> dict[str, Any]:
        """What `skillbus doctor` and readiness tell of the server, as plain data; never raises.

        reachable, address; then version, edition, schema (made), schema_wanted and counts; or
        problem: why not.
        """
        report: dict[str, Any] = {"address": self._server.address, "reachable": False}
        try:
            version, edition = migrations.server_version(self._server)
            report |= {"reachable": True, "version": version, "edition": edition}
            report["schema"] = migrations.schema_version(self._server)
            report["schema_wanted"] = max(migrations.migrations())
            report["counts"] = self.get_counts()
        except SkillbusError as error:
            report["problem"] = str(error)
        return report

    def prune_removed(self, age_seconds: float) -> int:
        """Forget skills that were removed more than `age` seconds ago; how many."""
        self.delete_orphaned_passages()
        return super().prune_removed(age_seconds)

    def bookmarks(self) -> list[str]:
        """What stands for all that this process has written and read; for `follow` elsewhere."""
        return self._server.bookmarks()

    def apply_bookmarks(self, bookmarks: Iterable[str]) -> None:
        """Have later calls see at least what another process had seen at these bookmarks.

        Needed only where several servers hold the database: a read may reach one that lags.
        """
        self._server.apply_bookmarks(bookmarks)

    def close(self) -> None:
        """Release the connections."""
        self._server.close()

    def _withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[str]:
        withdrawn = super()._withdraw(withdrawals)
        if self._passages:
            self.delete_passages(withdrawn)
        return withdrawn
