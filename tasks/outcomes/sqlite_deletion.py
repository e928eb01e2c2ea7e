"""Deletion from the store of outcomes in SQLite, in batches between which others write."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import NamedTuple

from search.batches import batches
from tasks.outcomes.sqlite_days import forget_tombstones, mark_changed_days, mark_changed_queries
from tasks.sqlite_file import SqliteFile

DELETED_AT_ONCE = 500
"""Queries, or outcomes, that are deleted in one transaction."""


class AnswerRow(NamedTuple):
    """Where an answered query is stored, and the day of its answer."""

    number: int
    query_id: str
    day: int


class OutcomeRow(NamedTuple):
    """Where an outcome is stored, its query and the day of the answer to that query."""

    key: str
    query_id: str
    day: int


def list_answers_of_owner(connection: sqlite3.Connection, owner: str) -> list[AnswerRow]:
    """The queries that this owner asked."""
    return _list_answers(
        connection, "SELECT number, query_id, day FROM answers WHERE owner = ?", owner
    )


def list_answers_before(connection: sqlite3.Connection, seconds: float) -> list[AnswerRow]:
    """The queries that were answered before this time, in seconds since 1970."""
    return _list_answers(
        connection, "SELECT number, query_id, day FROM answers WHERE answered < ?", seconds
    )


def _list_answers(
    connection: sqlite3.Connection, statement: str, value: str | float
) -> list[AnswerRow]:
    return [AnswerRow(*row) for row in connection.execute(statement, (value,))]


def list_outcomes_of_owner(connection: sqlite3.Connection, owner: str) -> list[OutcomeRow]:
    """The outcomes that this owner reported."""
    rows = connection.execute(
        "SELECT o.key, a.query_id, a.day FROM outcomes o JOIN answers a ON a.number = o.query "
        "WHERE o.owner = ?",
        (owner,),
    )
    return [OutcomeRow(*row) for row in rows]


def forget_answers(file: SqliteFile, rows: Sequence[AnswerRow]) -> int:
    """Delete these queries with their outcomes and vectors, so that they cannot be added again.

    Returns the number of outcomes deleted. What an interrupted call has not deleted is deleted by
    the next.
    """
    deleted = 0
    for batch in batches(rows, DELETED_AT_ONCE):
        now = time.time()
        with file.transaction(durable=True) as connection:
            reported, count = delete_answers(connection, batch)
            connection.executemany(
                "REPLACE INTO forgotten VALUES (?, ?)", [(row.query_id, now) for row in batch]
            )
            mark_changed_queries(connection, reported)
            mark_changed_days(connection, {row.day for row in batch})
        deleted += count
    with file.transaction() as connection:
        forget_tombstones(connection, time.time())
    return deleted


def forget_outcomes(file: SqliteFile, rows: Sequence[OutcomeRow]) -> int:
    """Delete these outcomes; their queries stay. Returns the number deleted."""
    deleted = 0
    for batch in batches(rows, DELETED_AT_ONCE):
        with file.transaction(durable=True) as connection:
            deleted += connection.executemany(
                "DELETE FROM outcomes WHERE key = ?", [(row.key,) for row in batch]
            ).rowcount
            mark_changed_queries(connection, sorted({row.query_id for row in batch}))
            mark_changed_days(connection, {row.day for row in batch})
    return deleted


def delete_answers(
    connection: sqlite3.Connection, rows: Sequence[AnswerRow]
) -> tuple[list[str], int]:
    """Delete queries with their outcomes and vectors.

    Returns the ids of those that had outcomes, and the number of these outcomes.
    """
    numbers = json.dumps([row.number for row in rows])
    reported = [
        query_id
        for (query_id,) in connection.execute(
            "SELECT query_id FROM answers a "
            "WHERE number IN (SELECT value FROM json_each(?)) "
            "AND EXISTS (SELECT * FROM outcomes WHERE query = a.number) ORDER BY query_id",
            (numbers,),
        )
    ]
    deleted = connection.execute(
        "DELETE FROM outcomes WHERE query IN (SELECT value FROM json_each(?))", (numbers,)
    ).rowcount
    connection.execute(
        "DELETE FROM vectors WHERE query IN (SELECT value FROM json_each(?))", (numbers,)
    )
    connection.execute(
        "DELETE FROM answers WHERE number IN (SELECT value FROM json_each(?))", (numbers,)
    )
    return reported, deleted


def prune_days(file: SqliteFile, before: int) -> int:
    """As `OutcomeStore.prune_days`; one that was interrupted is continued by the next."""
    with file.transaction() as connection:
        # First, so that nothing is added to a day of which a part is deleted.
        connection.execute(
            "UPDATE days SET pruned = 1 WHERE day < ? AND saved_version = version AND NOT pruned",
            (before,),
        )
    deleted = 0
    while count := _prune_batch(file):
        deleted += count
    return deleted


def _prune_batch(file: SqliteFile) -> int:
    with file.transaction() as connection:
        rows = [
            AnswerRow(*row)
            for row in connection.execute(
                "SELECT number, query_id, day FROM answers "
                "WHERE day IN (SELECT day FROM days WHERE pruned) LIMIT ?",
                (DELETED_AT_ONCE,),
            )
        ]
        reported, _ = delete_answers(connection, rows)
        now = time.time()
        connection.executemany(
            "REPLACE INTO forgotten VALUES (?, ?)", [(query_id, now) for query_id in reported]
        )
        mark_changed_queries(connection, reported)
        forget_tombstones(connection, now)
    return len(rows)
