"""Days of the store of outcomes in SQLite: changes, rows and usage."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from typing_extensions import override

from skills.outcomes.codec import load_answer, load_outcome
from skills.outcomes.model import AnsweredQuery, Outcome
from tasks.outcomes.protocol import OutcomeStore
from tasks.sqlite_file import SqliteFile

_PAGE = 2_000
"""Number of rows of a day that are read at once."""


def mark_changed_queries(connection: sqlite3.Connection, query_ids: Iterable[str]) -> None:
    """Give each of these queries a new epoch in the feed of changes."""
    rows = [(query_id,) for query_id in query_ids]
    connection.executemany("REPLACE INTO changes (query_id) VALUES (?)", rows)


def list_reported(connection: sqlite3.Connection, query_ids: Sequence[str]) -> list[str]:
    """Return the given queries that have outcomes, by id."""
    rows = connection.execute(
        "SELECT query_id FROM answers a WHERE query_id IN (SELECT value FROM json_each(?)) "
        "AND EXISTS (SELECT * FROM outcomes WHERE query = a.number) ORDER BY query_id",
        (json.dumps(query_ids),),
    )
    return [query_id for (query_id,) in rows]


def mark_changed_days(connection: sqlite3.Connection, days: Iterable[int]) -> None:
    """Give each of these days a new version."""
    connection.executemany(
        "INSERT INTO days (day) VALUES (?) ON CONFLICT (day) DO UPDATE SET version = version + 1",
        [(day,) for day in days],
    )


class SqliteDays(OutcomeStore):
    """The part of `SqliteOutcomeStore` that is about days."""

    _file: SqliteFile

    @override
    def list_changed_days(self) -> dict[int, int]:
        return dict(
            self._file.read(
                "SELECT day, version FROM days WHERE version > saved_version AND NOT pruned "
                "ORDER BY day"
            )
        )

    @override
    def list_answers_of(self, day: int) -> Iterator[AnsweredQuery]:
        statement = (
            "SELECT query_id, data FROM answers WHERE day = ? AND query_id > ? "
            "ORDER BY query_id LIMIT ?"
        )
        return (load_answer(data) for _, data in self._read_day(statement, day))

    @override
    def list_outcomes_of(self, day: int) -> Iterator[Outcome]:
        statement = (
            "SELECT o.key, a.query_id, o.data FROM outcomes o JOIN answers a ON a.number = o.query "
            "WHERE o.day = ? AND o.key > ? ORDER BY o.key LIMIT ?"
        )
        return (load_outcome(*row) for row in self._read_day(statement, day))

    def _read_day(self, statement: str, day: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement for a day, page by page in order of their first column."""
        last = ""
        while True:
            rows = self._file.read(statement, (day, last, _PAGE))
            yield from rows
            if len(rows) < _PAGE:
                return
            last = rows[-1][0]

    @override
    def save_day(self, day: int, version: int, usage: bytes) -> None:
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE days SET saved_version = ?, usage = ? "
                "WHERE day = ? AND saved_version < ? AND NOT pruned",
                (version, usage, day, version),
            )

    @override
    def get_days(self, first: int, last: int) -> dict[int, bytes]:
        return dict(
            self._file.read(
                "SELECT day, usage FROM days WHERE day BETWEEN ? AND ? AND usage IS NOT NULL "
                "ORDER BY day",
                (first, last),
            )
        )

    @override
    def merge_days(self, first: int, last: int, usage: bytes) -> None:
        with self._file.transaction() as connection:
            (kept,) = connection.execute(
                "SELECT count(*) FROM days WHERE day BETWEEN ? AND ? AND NOT pruned", (first, last)
            ).fetchone()
            if kept:
                return
            connection.execute(
                "UPDATE days SET usage = NULL WHERE day BETWEEN ? AND ?", (first, last)
            )
            connection.execute(
                "INSERT INTO days (day, version, saved_version, pruned, usage) "
                "VALUES (?, 1, 1, 1, ?) ON CONFLICT (day) DO UPDATE SET usage = excluded.usage",
                (first, usage),
            )
