"""Backup of a catalog: copies its whole database to rows, and rows into an empty database."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from config.errors import PermanentError, UsageError
from config.server_settings import ServerSettings
from graph.named_statements import load_statements
from graph.neo4j import migrations
from graph.neo4j.client import Neo4jClient, Run

NODE_KEYS = {
    "Meta": ("key",),
    "Source": ("source_id",),
    "SourceGroups": ("source_id",),
    "Seen": ("source_id", "path"),
    "Skill": ("skill_id",),
    "Facts": ("skill_id",),
    "Mention": ("key", "source_id", "skill_id"),
    "FindingRule": ("rule", "skill_id"),
    "DismissedLink": ("source", "target", "type"),
    "Passage": ("skill_id", "seq", "place"),
}
"""Label -> properties that identify a node; has all labels of the schema."""

_META, _SCHEMA = ("Meta",), "schema"
_ENDS = (("Skill", "Skill"), ("Skill", "Passage"), ("Passage", "Passage"))
_RELATION_TYPE = re.compile(r"[A-Z_]+")
_SECONDS = 600.0
_BATCH_ROWS = 1_000


class Row(NamedTuple):
    """A node, or a relation between two nodes.

    labels: for a node, its label; for a relation, the label of the start, the type and the label of
    the end. values: for a node, its properties; for a relation, the keys of both ends and its
    properties.
    """

    labels: tuple[str, ...]
    values: Any


Store = Callable[[Iterable[Row]], None]


class CatalogBackup:
    """Reads and writes the database that `servers.neo4j` and `servers.neo4j_database` name."""

    def __init__(self, settings: ServerSettings) -> None:
        self._server = Neo4jClient(settings)
        self._statements = load_statements("graph.neo4j", "cypher", "backup.cypher")

    def read(self, store: Store) -> None:
        """Pass a consistent snapshot of all rows to `store`; again if the transaction is retried.

        Meanwhile nothing is published, removed or linked: writers wait, readers do not. Raises
        MisconfiguredError unless the schema is that of this version.
        """
        migrations.check(self._server)
        self._server.run_transaction(lambda run, _: store(self._rows(run)), _SECONDS, stream=True)

    def _rows(self, run: Run) -> Iterator[Row]:
        list(run(self._statements["lock_writers"]))
        for label in NODE_KEYS:
            for (values,) in run(self._statements["nodes"].replace("$$label", label)):
                yield Row((label,), values)
        for start, end in _ENDS:
            ids = ", ".join(
                f"[{', '.join(f'{name}.{key}' for key in NODE_KEYS[label])}]"
                for name, label in (("a", start), ("b", end))
            )
            for kind, *values in run(self._fill("relations", label=start, other=end, ids=ids)):
                yield Row((start, kind, end), values)

    def require_empty(self) -> None:
        """Raise UsageError if the database contains any nodes except counters."""
        count = self._server.read(self._statements["count_nodes"])[0][0]
        if count:
            raise UsageError(
                f"Neo4j at {self._server.address} is not empty ({count} nodes): restore into a "
                "database without a library"
            )

    def write(self, rows: Iterable[Row]) -> None:
        """Write rows that passed `check_schema` into an empty database, and migrate them.

        Raises PermanentError for rows of an unknown kind.
        """
        migrations.migrate(self._server)
        schema: list[dict[str, Any]] = []
        for _, group in groupby(rows, key=lambda row: len(row.labels)):  # nodes, then relations
            # By labels, since the types of successive relations alternate.
            open_batches: defaultdict[tuple[str, ...], list[Any]] = defaultdict(list)
            for labels, values in group:
                if labels == _META and values["key"] == _SCHEMA:
                    schema.append(values)
                    continue
                batch = open_batches[labels]
                batch.append(values)
                if len(batch) == _BATCH_ROWS:
                    self._write_batch(labels, batch)
                    batch.clear()
            for labels, batch in open_batches.items():
                self._write_batch(labels, batch)
        # The schema may be older than that of this version; migrations upgrade the data.
        self._write_batch(_META, schema)
        migrations.migrate(self._server)

    def _write_batch(self, labels: tuple[str, ...], batch: Sequence[Any]) -> None:
        if len(labels) == 1 and labels[0] in NODE_KEYS:
            key = ", ".join(f"{name}: row.{name}" for name in NODE_KEYS[labels[0]])
            self._write_rows(self._fill("add_nodes", label=labels[0], key=key), batch)
            return
        if len(labels) != 3 or (labels[0], labels[2]) not in _ENDS:
            raise PermanentError(f"the backup of the catalog has unknown rows {labels}")
        if not _RELATION_TYPE.fullmatch(labels[1]):
            raise PermanentError(f"the backup of the catalog has a relation {labels[1]!r}")
        # Links between two skills are identified by owner too.
        for owned in (True, False):
            some = [row for row in batch if ("owner" in row[2]) == owned]
            if some:
                self._write_rows(self._relation_statement(labels, owned), some)

    def _write_rows(self, statement: str, rows: Sequence[Any]) -> None:
        """Write rows without the time limit of other calls, at which a restoration would end."""
        self._server.run_transaction(lambda run, _: run(statement, rows=rows), _SECONDS)

    def _relation_statement(self, labels: tuple[str, ...], owned: bool) -> str:
        start, kind, end = labels
        ends = {
            name: ", ".join(f"{key}: row[{at}][{n}]" for n, key in enumerate(NODE_KEYS[label]))
            for name, at, label in (("from", 0, start), ("to", 1, end))
        }
        key = "owner: row[2].owner" if owned else ""
        return self._fill("add_relations", label=start, other=end, type=kind, key=key, **ends)

    def _fill(self, name: str, **names: str) -> str:
        text = self._statements[name]
        for place, value in names.items():
            text = text.replace(f"$${place}", value)
        return text

    def close(self) -> None:
        """Close the connections."""
        self._server.close()


def check_schema(rows: Iterable[Row]) -> None:
    """Raise UsageError if the rows of a catalog have no schema number, or one that is too new."""
    known = max(migrations.migrations())
    counters = (row.values for row in rows if row.labels == _META)
    schema = next((one["value"] for one in counters if one["key"] == _SCHEMA), None)
    if schema is None:
        raise UsageError("the backup is incomplete: its catalog names no schema")
    if schema > known:
        raise UsageError(
            f"the catalog of the backup has schema {schema}, this version of skillbus knows "
            f"{known}: restore it with the version that made it, or a later one"
        )
