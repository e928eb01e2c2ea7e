"""The journal of the embedded deployment, in a SQLite file: jobs, outbox and dead letters."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from skills.events import SKILL_UPSERTED, Event, parse_envelope
from tasks.journal.protocol import (
    MAX_ASKED,
    AskedQuery,
    EndedJobs,
    Job,
    JobKind,
    Journal,
    job_id,
    quote_skill,
    wants_reply,
)
from tasks.journal.sqlite_database import JournalDatabase
from tasks.journal.sqlite_dead_letters import SqliteDeadLetters
from tasks.journal.sqlite_work_records import SqliteWorkRecords


class SqliteJournal(SqliteDeadLetters, SqliteWorkRecords, Journal):
    """A `Journal` in one file. Threads may share it. `:memory:` keeps it for this process only.

    Raises TransientError for a locked or full disk, PermanentError for a damaged file.
    """

    def __init__(self, path: Path | str) -> None:
        database = JournalDatabase(path)
        SqliteDeadLetters.__init__(self, database)
        SqliteWorkRecords.__init__(self, database)
        # Only the process that has the journal open works on jobs, so both are kept in memory.
        self._reply_pending = threading.Event()
        self._stages: dict[str, list[str]] = {}

    @override
    def add_job(self, event: Event, kind: JobKind, ttl_seconds: float | None = None) -> bool:
        now = time.time()
        expires = None if ttl_seconds is None else now + ttl_seconds
        owed = wants_reply(event)
        # A query without a reply queue is asked again after a power failure; waiting for the disk
        # would take a tenth of its time.
        with self._database.transaction(durable=kind != "query" or owed) as connection:
            cursor = connection.execute(
                "INSERT OR IGNORE INTO jobs (source, id, kind, payload, accepted, expires, owed) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    event.source,
                    job_id(event),
                    kind,
                    event.model_dump_json(),
                    now,
                    expires,
                    int(owed),
                ),
            )
            return cursor.rowcount == 1

    @override
    def finish_job(self, job_id: str, outcome: dict[str, Any] | None = None) -> bool:
        return self._end(job_id, "done", outcome, "")

    @override
    def fail_job(self, job_id: str, reason: str, *, usage: bool = False) -> None:
        self._end(job_id, "failed", {"usage": True} if usage else None, reason)

    @override
    def cancel_job(self, job_id: str) -> bool:
        return self._end(job_id, "cancelled", None, "")

    def _end(self, job_id: str, state: str, outcome: dict[str, Any] | None, reason: str) -> bool:
        text = None if outcome is None else json.dumps(outcome, ensure_ascii=False)
        with self._database.transaction() as connection:
            ended = connection.execute(
                "UPDATE jobs SET state = ?, outcome = ?, reason = ?, finished = ? "
                "WHERE id = ? AND state = 'accepted' RETURNING owed",
                (state, text, reason, time.time(), job_id),
            ).fetchall()
            self._stages.pop(job_id, None)
        if (1,) in ended:
            self._reply_pending.set()
        return bool(ended)

    @override
    def start_stage(self, job_id: str, stage: str) -> bool:
        with self._database.reading() as connection:
            row = connection.execute("SELECT state FROM jobs WHERE id = ?", (job_id,)).fetchone()
            if row != ("accepted",):
                return False
            self._stages.setdefault(job_id, []).append(stage)
            return True

    @override
    def list_stages(self, job_id: str) -> list[str]:
        with self._database.lock:
            return list(self._stages.get(job_id, ()))

    @override
    def reopen_jobs(self, job_ids: Sequence[str]) -> None:
        with self._database.transaction(durable=True) as connection:
            connection.executemany(
                "UPDATE jobs SET state = 'accepted', outcome = NULL, reason = '', finished = NULL "
                "WHERE id = ? AND state = 'failed'",
                [(one,) for one in job_ids],
            )

    @override
    def get_jobs(self, job_ids: Sequence[str]) -> dict[str, Job]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT id, kind, payload, state, outcome, reason, accepted, expires "
                "FROM jobs WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(list(job_ids)),),
            ).fetchall()
        found = {row[0]: _to_job(row) for row in rows}
        return {job_id: found[job_id] for job_id in job_ids if job_id in found}

    @override
    def list_open_jobs(self, kind: JobKind, limit: int = 10_000) -> list[str]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT id FROM jobs WHERE kind = ? AND state = 'accepted' ORDER BY number LIMIT ?",
                (kind, limit),
            ).fetchall()
        return [row[0] for row in rows]

    @override
    def count_open_jobs(self, kind: JobKind) -> int:
        return int(self._aggregate_open("count(*)", kind))

    @override
    def get_oldest_job_age(self, kind: JobKind) -> float:
        oldest = self._aggregate_open("min(accepted)", kind)
        return 0.0 if oldest is None else max(0.0, time.time() - float(oldest))

    def _aggregate_open(self, column: str, kind: JobKind) -> Any:
        statement = f"SELECT {column} FROM jobs WHERE kind = ? AND state = 'accepted'"  # noqa: S608 - one of two constants
        with self._database.reading() as connection:
            return connection.execute(statement, (kind,)).fetchone()[0]

    @override
    def get_job_states(self, job_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT id, state, reason FROM jobs WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(list(job_ids)),),
            ).fetchall()
        return {job_id: (state, reason) for job_id, state, reason in rows}

    @override
    def list_ended_jobs(self, kind: JobKind, since: float, state: str = "done") -> EndedJobs:
        with self._database.reading() as connection:
            until = time.time()
            # SQLite uses the index of ended jobs only for the condition that defines it.
            rows = connection.execute(
                "SELECT id FROM jobs WHERE kind = ? AND state != 'accepted' AND finished >= ? "
                "AND state = ? ORDER BY finished",
                (kind, since, state),
            ).fetchall()
        return EndedJobs(tuple(row[0] for row in rows), until)

    @override
    def list_asked(self, owner: str) -> list[AskedQuery]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT id, coalesce(json_extract(payload, '$.data.task'), ''), state, accepted "
                "FROM jobs WHERE kind = 'query' "
                "AND coalesce(json_extract(payload, '$.owner'), '') = ? "
                "ORDER BY number DESC LIMIT ?",
                (owner, MAX_ASKED),
            ).fetchall()
        return [AskedQuery(*row) for row in rows]

    @override
    def end_session(self, session_id: str, seconds: float) -> None:
        now = time.time()
        with self._database.transaction(durable=True) as connection:
            connection.execute(
                "INSERT OR REPLACE INTO ended_sessions VALUES (?, ?)", (session_id, now + seconds)
            )
            connection.execute("DELETE FROM ended_sessions WHERE expires < ?", (now,))

    @override
    def is_session_ended(self, session_id: str) -> bool:
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT 1 FROM ended_sessions WHERE id = ? AND expires >= ?",
                (session_id, time.time()),
            ).fetchone()
        return row is not None

    @override
    def delete_ended_jobs(self, kind: JobKind, age_seconds: float) -> int:
        with self._database.transaction() as connection:
            return connection.execute(
                "DELETE FROM jobs WHERE kind = ? AND state != 'accepted' AND finished < ?",
                (kind, time.time() - age_seconds),
            ).rowcount

    @override
    def forget_skill(self, skill_id: str) -> int:
        named = quote_skill(skill_id)
        with self._database.transaction(durable=True) as connection:
            connection.execute("DELETE FROM runs WHERE reason != ''")
            connection.execute(
                "UPDATE jobs SET state = 'cancelled', finished = ?1, owed = 0 WHERE kind = 'event' "
                "AND state = 'accepted' AND instr(payload, ?2) AND instr(payload, ?3)",
                (time.time(), named, quote_skill(SKILL_UPSERTED)),
            )
            return connection.execute(
                "DELETE FROM jobs WHERE state != 'accepted' "
                "AND (instr(payload, ?1) OR instr(coalesce(outcome, ''), ?1))",
                (named,),
            ).rowcount

    @override
    def overwrite_deleted(self) -> None:
        self._database.overwrite_deleted()

    @override
    def list_pending_replies(self, limit: int = 100) -> list[str]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT id FROM jobs WHERE owed AND state != 'accepted' ORDER BY finished LIMIT ?",
                (limit,),
            ).fetchall()
        return [row[0] for row in rows]

    @override
    def mark_replied(self, job_id: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("UPDATE jobs SET owed = 0 WHERE id = ?", (job_id,))

    @override
    def wait_for_pending_reply(self, seconds: float) -> None:
        self._reply_pending.wait(seconds)
        self._reply_pending.clear()

    @override
    def close(self) -> None:
        self._database.close()


def _to_job(row: Sequence[Any]) -> Job:
    job_id, kind, payload, state, outcome, reason, accepted, expires = row
    return Job(
        job_id,
        kind,
        parse_envelope(payload),
        state,
        None if outcome is None else json.loads(outcome),
        reason,
        accepted,
        None if expires is None else expires - time.time(),
    )
