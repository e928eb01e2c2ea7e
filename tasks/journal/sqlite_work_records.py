"""Records of work in the journal's SQLite file."""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple

from typing_extensions import override

from tasks.journal.sqlite_database import JournalDatabase
from tasks.journal.work_records import (
    KEPT_SECONDS,
    MAX_RUNS,
    CountKind,
    TaskRun,
    WorkMinute,
    WorkRecords,
    build_minute,
    count_run,
)

_DELETE_SECONDS = 60.0

_ADD_RUN = """
INSERT INTO runs (trace_id, task, started, ended, outcome, items, attempts, error, reason)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9
WHERE (SELECT count(*) FROM runs WHERE trace_id = ?1) < ?10
"""

_COUNT = """
INSERT INTO work_minutes VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count
"""


class SqliteWorkRecords(WorkRecords):
    """Records of work in the tables `runs` and `work_minutes`."""

    def __init__(self, database: JournalDatabase) -> None:
        self._database = database
        self._deleted_at = 0.0

    @override
    def add_task_run(self, run: TaskRun, trace_ids: Sequence[str]) -> None:
        rows = [(one, *astuple(run), MAX_RUNS) for one in dict.fromkeys(trace_ids)]
        with self._database.transaction() as connection:
            connection.executemany(_ADD_RUN, rows)
            self._count(connection, count_run(run))

    @override
    def list_task_runs(self, trace_id: str) -> list[TaskRun]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT task, started, ended, outcome, items, attempts, error, reason FROM runs "
                "WHERE trace_id = ? ORDER BY ended, number",
                (trace_id,),
            ).fetchall()
        return [TaskRun(*row) for row in rows]

    @override
    def count_work(self, counts: Mapping[tuple[CountKind, str], int]) -> None:
        with self._database.transaction() as connection:
            self._count(connection, counts)

    def _count(
        self, connection: sqlite3.Connection, counts: Mapping[tuple[CountKind, str], int]
    ) -> None:
        now = time.time()
        minute = int(now // 60) * 60
        rows = [(minute, kind, name, count) for (kind, name), count in counts.items()]
        connection.executemany(_COUNT, rows)
        if now - self._deleted_at > _DELETE_SECONDS:
            self._deleted_at = now
            oldest = now - KEPT_SECONDS
            connection.execute("DELETE FROM runs WHERE ended < ?", (oldest,))
            connection.execute("DELETE FROM work_minutes WHERE minute < ?", (oldest,))

    @override
    def list_work_minutes(self, since: float) -> list[WorkMinute]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT minute, kind, name, count FROM work_minutes WHERE minute >= ? "
                "ORDER BY minute",
                (since,),
            ).fetchall()
        found: dict[int, dict[tuple[str, str], int]] = defaultdict(dict)
        for minute, kind, name, count in rows:
            found[minute][kind, name] = count
        return [build_minute(minute, counts) for minute, counts in found.items()]
