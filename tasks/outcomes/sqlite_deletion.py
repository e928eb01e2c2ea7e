"""Deletion from the store of outcomes in SQLite, in batches between which other connections can
write."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import override

from config.errors import NotFoundError
from skills.batches import batches
from tasks.outcomes.protocol import (
    KEPT_TOMBSTONE_SECONDS,
    OutcomeStore,
    describe_unknown_queries,
)
from tasks.outcomes.sqlite_days import list_reported, mark_changed_days, mark_changed_queries
from tasks.sqlite_file import SqliteFile

DELETED_AT_ONCE = 500
"""Maximum queries, or outcomes, that are deleted in one transaction."""

TOMBSTONES_AT_ONCE = 5_000
"""Maximum tombstones that are deleted in one transaction."""

_ANSWERS = (
    "SELECT number, query_id, day FROM answers WHERE query_id IN (SELECT value FROM json_each(?))"
)
_UNREPORTED_ANSWERS = f"{_ANSWERS} AND NOT EXISTS (SELECT 1 FROM outcomes WHERE query = number)"  # noqa: S608 - a constant
_OUTCOMES_OF_QUERY = (
    "SELECT key FROM outcomes WHERE query = (SELECT number FROM answers WHERE query_id = ?)"
)
_PRUNED_ANSWERS = (
    "SELECT number, query_id, day FROM answers "
    "WHERE day IN (SELECT day FROM days WHERE pruned) LIMIT ?"
)
_OUTCOMES = (
    "SELECT a.query_id, a.day FROM outcomes o JOIN answers a ON a.number = o.query "
    "WHERE o.key IN (SELECT value FROM json_each(?))"
)


class _AnswerRow(NamedTuple):
    """Row number of an answered query, its id, and the day of its answer.

    A number is valid within one transaction: the number of a deleted row may be given to another
    query.
    """

    number: int
    query_id: str
    day: int


def is_withdrawn(accepted: float, until: float) -> bool:
    """Return whether an outcome was accepted before a withdrawal at `until`.

    If the clock was set back since, that time lies ahead, and what was accepted until now came
    after it.
    """
    return accepted <= until and not accepted <= time.time() < until


class SqliteDeletion(OutcomeStore):
    """The part of `SqliteOutcomeStore` that deletes."""

    _file: SqliteFile

    @override
    def drop_answers(self, query_ids: Sequence[str]) -> None:
        with self._file.transaction() as connection:
            found = connection.execute(_UNREPORTED_ANSWERS, (json.dumps(list(query_ids)),))
            rows = [_AnswerRow(*row) for row in found]
            _delete_answers(connection, rows)
            mark_changed_days(connection, {row.day for row in rows})

    @override
    def forget_owner(self, owner: str) -> int:
        answers = self._list("SELECT query_id FROM answers WHERE owner = ?", owner)
        deleted = self._forget_answers(answers)
        outcomes = self._list("SELECT key FROM outcomes WHERE owner = ?", owner)
        return deleted + self._delete_outcomes(outcomes)

    @override
    def forget_before(self, seconds: float) -> int:
        answers = self._list("SELECT query_id FROM answers WHERE answered < ?", seconds)
        return self._forget_answers(answers)

    @override
    def forget_outcomes(self, query_id: str) -> int:
        with self._file.transaction(durable=True) as connection:
            # Refuses the outcomes that were accepted until now and are not stored yet.
            withdrawn = connection.execute(
                "REPLACE INTO withdrawals SELECT number, ? FROM answers WHERE query_id = ?",
                (time.time(), query_id),
            )
        if not withdrawn.rowcount:
            raise NotFoundError(describe_unknown_queries([query_id]))
        return self._delete_outcomes(self._list(_OUTCOMES_OF_QUERY, query_id))

    @override
    def prune_days(self, before: int) -> int:
        with self._file.transaction() as connection:
            # Done first, so that nothing is added to a partly deleted day. The next call continues
            # an interrupted one.
            connection.execute(
                "UPDATE days SET pruned = 1 "
                "WHERE day < ? AND saved_version = version AND NOT pruned",
                (before,),
            )
        deleted = 0
        while count := self._prune_batch():
            deleted += count
        self._forget_tombstones()
        return deleted

    def _list(self, statement: str, value: str | float) -> list[str]:
        return [name for (name,) in self._file.read(statement, (value,))]

    def _forget_answers(self, query_ids: Sequence[str]) -> int:
        """Delete these queries with their outcomes and vectors, so that they cannot be added again.

        Returns the number of outcomes deleted. The next call deletes what an interrupted call left.
        """
        deleted = 0
        for batch in batches(query_ids, DELETED_AT_ONCE):
            with self._file.transaction(durable=True) as connection:
                found = connection.execute(_ANSWERS, (json.dumps(batch),))
                rows = [_AnswerRow(*row) for row in found]
                deleted += _delete_answers(connection, rows)
                connection.executemany(
                    "REPLACE INTO forgotten VALUES (?, ?)",
                    [(row.query_id, time.time()) for row in rows],
                )
                mark_changed_days(connection, {row.day for row in rows})
        self._forget_tombstones()
        return deleted

    def _delete_outcomes(self, keys: Sequence[str]) -> int:
        """Delete these outcomes; their queries stay. Returns the number deleted."""
        deleted = 0
        for batch in batches(keys, DELETED_AT_ONCE):
            with self._file.transaction(durable=True) as connection:
                rows = connection.execute(_OUTCOMES, (json.dumps(batch),)).fetchall()
                deleted += connection.executemany(
                    "DELETE FROM outcomes WHERE key = ?", [(key,) for key in batch]
                ).rowcount
                mark_changed_queries(connection, sorted({query_id for query_id, _ in rows}))
                mark_changed_days(connection, {day for _, day in rows})
        return deleted

    def _prune_batch(self) -> int:
        with self._file.transaction() as connection:
            found = connection.execute(_PRUNED_ANSWERS, (DELETED_AT_ONCE,))
            rows = [_AnswerRow(*row) for row in found]
            _delete_answers(connection, rows)
            # Tombstones need not prevent additions here, since the days are pruned. They only limit
            # how long the feed names a query, even one whose outcomes were deleted before.
            connection.execute(
                "REPLACE INTO forgotten SELECT query_id, ? FROM changes "
                "WHERE query_id IN (SELECT value FROM json_each(?))",
                (time.time(), json.dumps([row.query_id for row in rows])),
            )
        return len(rows)

    def _forget_tombstones(self) -> None:
        """Delete the records of queries that were deleted long ago, from the feed and the store."""
        before = time.time() - KEPT_TOMBSTONE_SECONDS
        while True:
            with self._file.transaction() as connection:
                due = connection.execute(
                    "SELECT query_id FROM forgotten WHERE deleted < ? LIMIT ?",
                    (before, TOMBSTONES_AT_ONCE),
                ).fetchall()
                connection.executemany("DELETE FROM changes WHERE query_id = ?", due)
                connection.executemany("DELETE FROM forgotten WHERE query_id = ?", due)
            if len(due) < TOMBSTONES_AT_ONCE:
                return


def _delete_answers(connection: sqlite3.Connection, rows: Sequence[_AnswerRow]) -> int:
    """Delete queries with their outcomes and vectors; queries that had outcomes appear in the feed
    of changes.

    Returns the number of deleted outcomes.
    """
    numbers = json.dumps([row.number for row in rows])
    reported = list_reported(connection, [row.query_id for row in rows])
    deleted = connection.execute(
        "DELETE FROM outcomes WHERE query IN (SELECT value FROM json_each(?))", (numbers,)
    ).rowcount
    connection.execute(
        "DELETE FROM vectors WHERE query IN (SELECT value FROM json_each(?))", (numbers,)
    )
    connection.execute(
        "DELETE FROM withdrawals WHERE query IN (SELECT value FROM json_each(?))", (numbers,)
    )
    connection.execute(
        "DELETE FROM answers WHERE number IN (SELECT value FROM json_each(?))", (numbers,)
    )
    mark_changed_queries(connection, reported)
    return deleted
