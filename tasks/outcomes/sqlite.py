"""The store of outcomes of the embedded deployment: the file `outcomes.db` of a home."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from config.errors import NotFoundError
from skills.outcomes.codec import dump_answer, dump_outcome, load_answer, load_outcome
from skills.outcomes.model import AnsweredQuery, Outcome
from tasks.outcomes.protocol import (
    KEPT_TOMBSTONE_SECONDS,
    MAX_CHANGES,
    OutcomeChanges,
    OutcomeStore,
    StoredVector,
    describe_unknown_queries,
)
from tasks.shared_sqlite_file import SharedFile

OUTCOMES_FILE = SharedFile(
    "outcomes", "move it away to start anew; what was learned from them is lost", version=1
)

_TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    number INTEGER PRIMARY KEY,
    query_id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    session TEXT NOT NULL,
    day INTEGER NOT NULL,
    answered REAL NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_by_day ON answers (day, query_id);
CREATE INDEX IF NOT EXISTS answers_by_session ON answers (owner, session, answered)
    WHERE session != '';
CREATE TABLE IF NOT EXISTS outcomes (
    key TEXT PRIMARY KEY,
    query INTEGER NOT NULL,
    day INTEGER NOT NULL,
    owner TEXT NOT NULL,
    data BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS outcomes_by_query ON outcomes (query);
CREATE INDEX IF NOT EXISTS outcomes_by_day ON outcomes (day, key);
CREATE INDEX IF NOT EXISTS outcomes_by_owner ON outcomes (owner);
CREATE TABLE IF NOT EXISTS changes (
    epoch INTEGER PRIMARY KEY AUTOINCREMENT,
    query_id TEXT NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS forgotten (query_id TEXT PRIMARY KEY, deleted REAL NOT NULL);
CREATE TABLE IF NOT EXISTS vectors (
    query INTEGER NOT NULL,
    model TEXT NOT NULL,
    scale REAL NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (query, model)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contributors (
    source_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    PRIMARY KEY (source_id, owner)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS days (
    day INTEGER PRIMARY KEY,
    version INTEGER NOT NULL DEFAULT 1,
    saved_version INTEGER NOT NULL DEFAULT 0,
    usage TEXT
);
CREATE TABLE IF NOT EXISTS recorded (until REAL NOT NULL);
INSERT INTO recorded SELECT 0 WHERE NOT EXISTS (SELECT * FROM recorded);
"""

_CHANGE_DAY = (
    "INSERT INTO days (day) VALUES (?) ON CONFLICT (day) DO UPDATE SET version = version + 1"
)
_PRUNE_TOMBSTONES = (
    "DELETE FROM changes WHERE query_id IN (SELECT query_id FROM forgotten WHERE deleted < ?)",
    "DELETE FROM forgotten WHERE deleted < ?",
)

_PAGE = 2_000
"""Rows of a day that are read at once."""


class SqliteOutcomeStore(OutcomeStore):
    """The store in one file, shared by the threads of this process and by other processes.

    `:memory:` keeps it in this process.
    """

    def __init__(self, path: Path | str) -> None:
        """Raises as `SharedFile.open` does."""
        self._file = OUTCOMES_FILE.open(path, _TABLES)

    # -- answered queries
    @override
    def add_answers(self, answers: Sequence[AnsweredQuery]) -> None:
        with self._file.transaction() as connection:
            for answer in answers:
                added = connection.execute(
                    "INSERT OR IGNORE INTO answers (query_id, owner, session, day, answered, data) "
                    "SELECT ?1, ?2, ?3, ?4, ?5, ?6 "
                    "WHERE NOT EXISTS (SELECT 1 FROM forgotten WHERE query_id = ?1)",
                    (
                        answer.query_id,
                        answer.owner,
                        answer.session,
                        answer.day,
                        answer.answered,
                        dump_answer(answer),
                    ),
                )
                if added.rowcount:
                    connection.execute(_CHANGE_DAY, (answer.day,))

    @override
    def get_answers(self, query_ids: Sequence[str]) -> dict[str, AnsweredQuery]:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT data FROM answers WHERE query_id IN (SELECT value FROM json_each(?))",
                (json.dumps(list(query_ids)),),
            ).fetchall()
        found = {answer.query_id: answer for (data,) in rows for answer in [load_answer(data)]}
        return {query_id: found[query_id] for query_id in query_ids if query_id in found}

    @override
    def list_session(self, owner: str, session: str, limit: int) -> list[AnsweredQuery]:
        if not session:
            return []
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT data FROM answers WHERE owner = ? AND session = ? AND session != '' "
                "ORDER BY answered DESC, query_id DESC LIMIT ?",
                (owner, session, limit),
            ).fetchall()
        return [load_answer(data) for (data,) in reversed(rows)]

    # -- outcomes
    @override
    def add_outcomes(self, outcomes: Sequence[Outcome]) -> int:
        with self._file.transaction(durable=True) as connection:
            numbers = _read_numbers(connection, [one.query_id for one in outcomes])
            unknown = sorted({one.query_id for one in outcomes} - numbers.keys())
            if unknown:
                raise NotFoundError(describe_unknown_queries(unknown))
            new = [
                outcome
                for outcome in outcomes
                if connection.execute(
                    "INSERT OR IGNORE INTO outcomes (key, query, day, owner, data) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (
                        outcome.key,
                        numbers[outcome.query_id],
                        outcome.day,
                        outcome.owner,
                        dump_outcome(outcome),
                    ),
                ).rowcount
            ]
            _change(connection, dict.fromkeys(one.query_id for one in new))
            connection.executemany(_CHANGE_DAY, [(day,) for day in {one.day for one in new}])
        return len(new)

    @override
    def get_outcomes(self, query_ids: Sequence[str]) -> dict[str, tuple[Outcome, ...]]:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT o.key, a.query_id, o.data FROM answers a "
                "JOIN outcomes o ON o.query = a.number "
                "WHERE a.query_id IN (SELECT value FROM json_each(?)) ORDER BY o.key",
                (json.dumps(list(query_ids)),),
            ).fetchall()
        found: dict[str, list[Outcome]] = {}
        for row in rows:
            found.setdefault(row[1], []).append(load_outcome(*row))
        return {query_id: tuple(found[query_id]) for query_id in query_ids if query_id in found}

    @override
    def get_changes(self, after: int, limit: int = MAX_CHANGES) -> OutcomeChanges:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT epoch, query_id FROM changes WHERE epoch > ? ORDER BY epoch LIMIT ?",
                (after, limit + 1),
            ).fetchall()
        ids = tuple(query_id for _, query_id in rows[:limit])
        epoch = rows[:limit][-1][0] if rows else after
        return OutcomeChanges(epoch, ids, len(rows) > limit)

    @override
    def list_outcomes(self) -> Iterator[Outcome]:
        with self._file.reading() as connection:
            days = connection.execute("SELECT DISTINCT day FROM outcomes ORDER BY day").fetchall()
        for (day,) in days:
            yield from sorted(self.list_outcomes_of(day), key=lambda one: (one.reported, one.key))

    @override
    def count_outcomes(self) -> Mapping[str, int]:
        with self._file.reading() as connection:
            return dict(
                connection.execute(
                    "SELECT owner, count(*) FROM outcomes GROUP BY owner ORDER BY owner"
                ).fetchall()
            )

    @override
    def forget_owner(self, owner: str) -> int:
        return self._forget(
            "SELECT key FROM outcomes WHERE owner = ?1 OR query IN "
            "(SELECT number FROM answers WHERE owner = ?1)",
            "SELECT number FROM answers WHERE owner = ?1",
            owner,
        )

    @override
    def forget_before(self, seconds: float) -> int:
        return self._forget(
            "SELECT key FROM outcomes WHERE query IN "
            "(SELECT number FROM answers WHERE answered < ?1)",
            "SELECT number FROM answers WHERE answered < ?1",
            seconds,
        )

    def _forget(self, outcomes: str, answers: str, value: str | float) -> int:
        """Delete the outcomes and answers that these statements select with one parameter."""
        now = time.time()
        with self._file.transaction(durable=True) as connection:
            changed = connection.execute(
                "SELECT DISTINCT a.query_id FROM outcomes o JOIN answers a ON a.number = o.query "  # noqa: S608 - constants of this class
                f"WHERE o.key IN ({outcomes}) ORDER BY a.query_id",
                (value,),
            ).fetchall()
            days = connection.execute(
                f"SELECT day FROM outcomes WHERE key IN ({outcomes}) "  # noqa: S608
                f"UNION SELECT day FROM answers WHERE number IN ({answers})",
                (value,),
            ).fetchall()
            deleted = connection.execute(
                f"DELETE FROM outcomes WHERE key IN ({outcomes})",  # noqa: S608
                (value,),
            ).rowcount
            connection.execute(
                "REPLACE INTO forgotten SELECT query_id, ?2 FROM answers "  # noqa: S608
                f"WHERE number IN ({answers})",
                (value, now),
            )
            for table, column in (("vectors", "query"), ("answers", "number")):
                connection.execute(
                    f"DELETE FROM {table} WHERE {column} IN ({answers})",  # noqa: S608
                    (value,),
                )
            _change(connection, [query_id for (query_id,) in changed])
            for statement in _PRUNE_TOMBSTONES:
                connection.execute(statement, (now - KEPT_TOMBSTONE_SECONDS,))
            connection.executemany(_CHANGE_DAY, days)
        return deleted

    # -- vectors of past tasks
    @override
    def save_vectors(self, model: str, vectors: Mapping[str, StoredVector]) -> None:
        with self._file.transaction() as connection:
            numbers = _read_numbers(connection, list(vectors))
            connection.executemany(
                "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?, ?)",
                [
                    (numbers[query_id], model, vector.scale, vector.values.tobytes())
                    for query_id, vector in vectors.items()
                    if query_id in numbers
                ],
            )

    @override
    def get_vectors(self, model: str, query_ids: Sequence[str]) -> dict[str, StoredVector]:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT a.query_id, v.scale, v.data FROM json_each(?) j "
                "JOIN answers a ON a.query_id = j.value JOIN vectors v ON v.query = a.number "
                "WHERE v.model = ?",
                (json.dumps(list(query_ids)), model),
            ).fetchall()
        return {
            query_id: StoredVector(np.frombuffer(data, dtype=np.int8), scale)
            for query_id, scale, data in rows
        }

    # -- contributors
    @override
    def add_contributor(self, source_id: str, owner: str) -> None:
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO contributors VALUES (?, ?)", (source_id, owner)
            )

    @override
    def list_contributors(self) -> dict[str, frozenset[str]]:
        with self._file.reading() as connection:
            rows = connection.execute("SELECT source_id, owner FROM contributors").fetchall()
        owners: dict[str, set[str]] = {}
        for source_id, owner in rows:
            owners.setdefault(source_id, set()).add(owner)
        return {source_id: frozenset(found) for source_id, found in owners.items()}

    # -- days
    @override
    def list_changed_days(self) -> dict[int, int]:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT day, version FROM days WHERE version > saved_version ORDER BY day"
            ).fetchall()
        return dict(rows)

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
        """The rows of a statement for a day, page by page in order of their first column."""
        last = ""
        while True:
            with self._file.reading() as connection:
                rows = connection.execute(statement, (day, last, _PAGE)).fetchall()
            yield from rows
            if len(rows) < _PAGE:
                return
            last = rows[-1][0]

    @override
    def save_day(self, day: int, version: int, usage: str) -> None:
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE days SET saved_version = ?, usage = ? WHERE day = ? AND saved_version < ?",
                (version, usage, day, version),
            )

    @override
    def get_days(self, first: int, last: int) -> dict[int, str]:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT day, usage FROM days WHERE day BETWEEN ? AND ? AND usage IS NOT NULL "
                "ORDER BY day",
                (first, last),
            ).fetchall()
        return dict(rows)

    # -- recorded answers
    @override
    def get_recorded_until(self) -> float:
        with self._file.reading() as connection:
            (until,) = connection.execute("SELECT until FROM recorded").fetchone()
        return float(until)

    @override
    def set_recorded_until(self, seconds: float) -> None:
        with self._file.transaction() as connection:
            connection.execute("UPDATE recorded SET until = max(until, ?)", (seconds,))

    @override
    def close(self) -> None:
        self._file.close()


def _read_numbers(connection: sqlite3.Connection, query_ids: Sequence[str]) -> dict[str, int]:
    """The row numbers of answered queries by id."""
    return dict(
        connection.execute(
            "SELECT query_id, number FROM answers "
            "WHERE query_id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(dict.fromkeys(query_ids))),),
        ).fetchall()
    )


def _change(connection: sqlite3.Connection, query_ids: Iterable[str]) -> None:
    """Give these queries a new epoch each."""
    rows = [(query_id,) for query_id in query_ids]
    connection.executemany("REPLACE INTO changes (query_id) VALUES (?)", rows)
