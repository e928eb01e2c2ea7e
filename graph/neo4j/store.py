"""Neo4j store of catalog, links and projected passages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from config.errors import SkillbusError
from config.server_settings import ServerSettings
from graph.neo4j import migrations
from graph.neo4j.catalog import Neo4jCatalog
from graph.neo4j.client import Neo4jClient
from graph.neo4j.link_store import Neo4jLinkStore
from graph.neo4j.passages import Neo4jPassages
from graph.protocol import SkillGraph
from graph.records import Withdrawal


class Neo4jSkillGraph(Neo4jCatalog, Neo4jLinkStore, Neo4jPassages, SkillGraph):
    """`graph.protocol.SkillGraph` on Neo4j; safe to share among threads and processes.

    Any number of processes may write. Calls raise TransientError if the server is unreachable, busy
    or slower than `servers.timeout_seconds`, MisconfiguredError for wrong settings or schema.
    """

    def __init__(self, settings: ServerSettings, *, writable: bool = True) -> None:
        """Create the store; it connects on the first call."""
        super().__init__(Neo4jClient(settings), writable=writable)
        self._projects_passages = settings.neo4j_passages

    def migrate(self) -> None:
        """Create the schema, or migrate an older schema; each writing process calls it once.

        Any number of processes may call it at once. Raises MisconfiguredError for a schema of a
        newer skillbus.
        """
        migrations.migrate(self._server)
        self._checked = True

    def health(self) -> dict[str, Any]:
        """Return the state of the server for `skillbus doctor` and readiness checks.

        Keys: reachable and address; version, edition, schema, schema_wanted and counts as far as
        they can be read; problem, the reason if the server cannot be used. Raises no SkillbusError.
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

    @override
    def prune_removed(self, age_seconds: float) -> list[str]:
        """Also deletes orphaned passage nodes."""
        self.delete_orphaned_passages()
        return super().prune_removed(age_seconds)

    @override
    def close(self) -> None:
        self._server.close()

    @override
    def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[str]:
        withdrawn = super().withdraw(withdrawals)
        if self._projects_passages:
            self.delete_passages(withdrawn)
        return withdrawn
