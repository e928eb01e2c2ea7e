"""Runs the named SQL statements of the embedded store on its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from graph.adjacency_cache import CACHED_ROWS, AdjacencyCache
from graph.local.database import Database
from graph.local.transactions import Arguments, Transaction
from graph.named_statements import load_statements


class StatementRunner:
    """Base class of the stores in one SQLite file: statements by name, transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statements = load_statements("graph.local", "queries.sql")
        self._adjacency_cache = AdjacencyCache(CACHED_ROWS)

    def _read(self, name: str, arguments: Arguments = ()) -> list[tuple[Any, ...]]:
        with self._database.read() as db:
            return db.execute(self._statements[name], arguments).fetchall()

    def _write(self, name: str, arguments: Arguments = ()) -> list[tuple[Any, ...]]:
        with self._transact() as transaction:
            return transaction.run(name, arguments).fetchall()

    def _write_each(self, name: str, rows: Iterable[Arguments]) -> None:
        """Run a statement for each row, in one transaction."""
        with self._database.write() as db:
            db.executemany(self._statements[name], rows)

    @contextmanager
    def _transact(self) -> Iterator[Transaction]:
        with self._database.write() as db:
            yield Transaction(db, self._statements)
