"""Store of outcomes of the embedded deployment: the file `outcomes.db` of a home."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from config.errors import NotFoundError, PermanentError
from skills.outcomes.codec import dump_answer, dump_outcome, load_answer, load_outcome
from skills.outcomes.model import AnsweredQuery, Outcome
from tasks.outcomes.protocol import (
    MAX_CHANGES,
    MAX_OUTCOMES_PER_QUERY,
    AnswerPlace,
    OutcomeChanges,
    StoredVector,
    TaskVectors,
    describe_full_query,
    describe_unknown_queries,
)
from tasks.outcomes.sqlite_days import (
    SqliteDays,
    list_reported,
    mark_changed_days,
    mark_changed_queries,
)
from tasks.outcomes.sqlite_deletion import SqliteDeletion, is_withdrawn
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
CREATE INDEX IF NOT EXISTS answers_by_time ON answers (answered, query_id);
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
CREATE INDEX IF NOT EXISTS forgotten_by_time ON forgotten (deleted);
CREATE TABLE IF NOT EXISTS vectors (
    query INTEGER NOT NULL,
    model TEXT NOT NULL,
    scale REAL NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (query, model)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS withdrawals (query INTEGER PRIMARY KEY, until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS contributors (
    source_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    PRIMARY KEY (source_id, owner)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS days (
    day INTEGER PRIMARY KEY,
    version INTEGER NOT NULL DEFAULT 1,
    saved_version INTEGER NOT NULL DEFAULT 0,
    pruned INTEGER NOT NULL DEFAULT 0,
    usage BLOB
);
CREATE TABLE IF NOT EXISTS recorded (until REAL NOT NULL);
INSERT INTO recorded SELECT 0 WHERE NOT EXISTS (SELECT * FROM recorded);
"""

_ADD_VECTOR = (
    "INSERT OR IGNORE INTO vectors (query, model, scale, data) "
    "SELECT number, ?, ?, ? FROM answers WHERE query_id = ?"
)
_ADD_ANSWER = (
    "INSERT OR IGNORE INTO answers (query_id, owner, session, day, answered, data) "
    "SELECT ?1, ?2, ?3, ?4, ?5, ?6 "
    "WHERE NOT EXISTS (SELECT * FROM forgotten WHERE query_id = ?1) "
    "AND NOT EXISTS (SELECT * FROM days WHERE day = ?4 AND pruned)"
)


class SqliteOutcomeStore(SqliteDays, SqliteDeletion):
    """An `OutcomeStore` in one file, shared by the threads of this process and by other processes.

    `:memory:` keeps it in this process.
    """

    def __init__(self, path: Path | str) -> None:
        """Open the file; raises as `SharedFile.open` does."""
        self._file = OUTCOMES_FILE.open(path, _TABLES)

    # -- answered queries
    @override
    def add_answers(
        self, answers: Sequence[AnsweredQuery], vectors: TaskVectors | None = None
    ) -> None:
        with self._file.transaction() as connection:
            for answer in answers:
                added = connection.execute(
                    _ADD_ANSWER,
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
                    mark_changed_days(connection, [answer.day])
            if vectors is not None:
                added_to = [
                    query_id
                    for query_id, one in vectors.vectors.items()
                    if connection.execute(
                        _ADD_VECTOR, (vectors.model, one.scale, one.values.tobytes(), query_id)
                    ).rowcount
                ]
                mark_changed_queries(connection, list_reported(connection, added_to))

    @override
    def get_answers(self, query_ids: Sequence[str]) -> dict[str, AnsweredQuery]:
        rows = self._file.read(
            "SELECT data FROM answers WHERE query_id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(query_ids)),),
        )
        found = {answer.query_id: answer for (data,) in rows for answer in [load_answer(data)]}
        return {query_id: found[query_id] for query_id in query_ids if query_id in found}

    @override
    def list_session(self, owner: str, session: str, limit: int) -> list[AnsweredQuery]:
        if not session:
            return []
        rows = self._file.read(
            "SELECT data FROM answers WHERE owner = ? AND session = ? AND session != '' "
            "ORDER BY answered DESC, query_id DESC LIMIT ?",
            (owner, session, limit),
        )
        return [load_answer(data) for (data,) in reversed(rows)]

    @override
    def list_answers_before(self, place: AnswerPlace, limit: int) -> list[AnsweredQuery]:
        rows = self._file.read(
            "SELECT data FROM answers WHERE (answered, query_id) < (?, ?) "
            "ORDER BY answered DESC, query_id DESC LIMIT ?",
            (*place, limit),
        )
        return [load_answer(data) for (data,) in rows]

    # -- outcomes
    @override
    def add_outcomes(self, outcomes: Sequence[Outcome], accepted: float = math.inf) -> int:
        with self._file.transaction(durable=True) as connection:
            numbers = _read_numbers(connection, [one.query_id for one in outcomes])
            unknown = sorted({one.query_id for one in outcomes} - numbers.keys())
            if unknown:
                raise NotFoundError(describe_unknown_queries(unknown))
            new = [
                outcome
                for outcome in outcomes
                if not is_withdrawn(accepted, numbers[outcome.query_id].withdrawn)
                and connection.execute(
                    "INSERT OR IGNORE INTO outcomes (key, query, day, owner, data) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (
                        outcome.key,
                        numbers[outcome.query_id].number,
                        outcome.day,
                        outcome.owner,
                        dump_outcome(outcome),
                    ),
                ).rowcount
            ]
            _check_room(connection, {(one.query_id, one.owner) for one in new})
            changed = dict.fromkeys(one.query_id for one in new)
            mark_changed_queries(connection, changed)
            mark_changed_days(connection, {numbers[one].day for one in changed})
        return len(new)

    @override
    def get_outcomes(self, query_ids: Sequence[str]) -> dict[str, tuple[Outcome, ...]]:
        rows = self._file.read(
            "SELECT o.key, a.query_id, o.data FROM answers a "
            "JOIN outcomes o ON o.query = a.number "
            "WHERE a.query_id IN (SELECT value FROM json_each(?)) ORDER BY o.key",
            (json.dumps(list(query_ids)),),
        )
        found: dict[str, list[Outcome]] = {}
        for row in rows:
            found.setdefault(row[1], []).append(load_outcome(*row))
        return {query_id: tuple(found[query_id]) for query_id in query_ids if query_id in found}

    @override
    def get_changes(self, after: int, limit: int = MAX_CHANGES) -> OutcomeChanges:
        rows = self._file.read(
            "SELECT epoch, query_id FROM changes WHERE epoch > ? ORDER BY epoch LIMIT ?",
            (after, limit + 1),
        )
        ids = tuple(query_id for _, query_id in rows[:limit])
        epoch = rows[:limit][-1][0] if rows else after
        return OutcomeChanges(epoch, ids, len(rows) > limit)

    @override
    def get_epoch(self) -> int:
        rows = self._file.read("SELECT seq FROM sqlite_sequence WHERE name = 'changes'")
        return int(rows[0][0]) if rows else 0

    @override
    def list_outcomes(self) -> Iterator[Outcome]:
        for (day,) in self._file.read("SELECT DISTINCT day FROM outcomes ORDER BY day"):
            yield from sorted(self.list_outcomes_of(day), key=lambda one: (one.reported, one.key))

    @override
    def count_outcomes(self) -> Mapping[str, int]:
        return dict(
            self._file.read("SELECT owner, count(*) FROM outcomes GROUP BY owner ORDER BY owner")
        )

    # -- vectors of past tasks
    @override
    def get_vectors(self, model: str, query_ids: Sequence[str]) -> dict[str, StoredVector]:
        rows = self._file.read(
            "SELECT a.query_id, v.scale, v.data FROM json_each(?) j "
            "JOIN answers a ON a.query_id = j.value JOIN vectors v ON v.query = a.number "
            "WHERE v.model = ?",
            (json.dumps(list(query_ids)), model),
        )
        return {
            query_id: StoredVector(np.frombuffer(data, dtype=np.int8), scale)
            for query_id, scale, data in rows
        }

    # -- contributors
    @override
    def add_contributor(self, source_id: str, owner: str) -> None:
        # As durable as the event in the journal: a pair that is known already is not written.
        with self._file.transaction(durable=True) as connection:
            connection.execute(
                "INSERT OR IGNORE INTO contributors VALUES (?, ?)", (source_id, owner)
            )

    @override
    def list_contributors(self) -> dict[str, frozenset[str]]:
        owners: dict[str, set[str]] = {}
        for source_id, owner in self._file.read("SELECT source_id, owner FROM contributors"):
            owners.setdefault(source_id, set()).add(owner)
        return {source_id: frozenset(found) for source_id, found in owners.items()}

    @override
    def count_contributors(self) -> int:
        [(count,)] = self._file.read("SELECT count(*) FROM contributors")
        return int(count)

    # -- recorded answers
    @override
    def get_recorded_until(self) -> float:
        [(until,)] = self._file.read("SELECT until FROM recorded")
        return float(until)

    @override
    def set_recorded_until(self, seconds: float) -> None:
        with self._file.transaction() as connection:
            connection.execute("UPDATE recorded SET until = max(until, ?)", (seconds,))

    @override
    def close(self) -> None:
        self._file.close()


class _Row(NamedTuple):
    """An answered query: number of its row, the day of its answer, and until when accepted outcomes
    were withdrawn."""

    number: int
    day: int
    withdrawn: float


def _read_numbers(connection: sqlite3.Connection, query_ids: Sequence[str]) -> dict[str, _Row]:
    """Return the rows of answered queries by id, without queries of days that are being pruned."""
    rows = connection.execute(
        "SELECT query_id, number, day, coalesce(until, 0) FROM answers a "
        "LEFT JOIN withdrawals w ON w.query = a.number "
        "WHERE query_id IN (SELECT value FROM json_each(?)) "
        "AND NOT EXISTS (SELECT * FROM days d WHERE d.day = a.day AND d.pruned)",
        (json.dumps(list(dict.fromkeys(query_ids))),),
    )
    return {query_id: _Row(*row) for query_id, *row in rows}


def _check_room(connection: sqlite3.Connection, reports: Iterable[tuple[str, str]]) -> None:
    """Raise PermanentError if an owner has too many outcomes of a query. reports: (query,
    owner)."""
    for query_id, owner in sorted(reports):
        # +owner: makes SQLite use the index of queries, not that of owners.
        (count,) = connection.execute(
            "SELECT count(*) FROM outcomes "
            "WHERE query = (SELECT number FROM answers WHERE query_id = ?) AND +owner = ?",
            (query_id, owner),
        ).fetchone()
        if count > MAX_OUTCOMES_PER_QUERY:
            raise PermanentError(describe_full_query(query_id))
