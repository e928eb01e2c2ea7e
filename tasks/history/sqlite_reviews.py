"""Review store of the embedded deployment, in the file `history.db` of the home."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from typing_extensions import override

from search.review_store import ReviewStore
from skills.review import POLICY_KINDS, ReviewKind, ReviewRecord, Reviews, ReviewSlot
from tasks.history.sqlite import HISTORY_FILE

_TABLES = """
CREATE TABLE IF NOT EXISTS reviews (
    skill_id TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    topic TEXT NOT NULL,
    kind TEXT NOT NULL,
    rule TEXT NOT NULL,
    findings TEXT NOT NULL,
    seq INTEGER NOT NULL,
    principal TEXT NOT NULL,
    reason TEXT NOT NULL,
    recorded REAL NOT NULL,
    PRIMARY KEY (skill_id, content_hash, topic)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS review_version (version INTEGER NOT NULL);
INSERT INTO review_version SELECT 0 WHERE NOT EXISTS (SELECT * FROM review_version);
"""
_COLUMNS = "skill_id, content_hash, kind, rule, findings, seq, principal, reason, recorded"
_PUT = "INSERT OR REPLACE INTO reviews VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD = """
INSERT INTO reviews VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (skill_id, content_hash, topic) DO UPDATE SET seq = excluded.seq
    WHERE kind = 'waiting' AND excluded.kind = 'waiting' AND excluded.seq > seq
"""


class SqliteReviewStore(ReviewStore):
    """A `ReviewStore` in one file, shared by the threads of this process and by other processes."""

    def __init__(self, path: Path | str) -> None:
        """Open the file; raises as `SharedFile.open` does."""
        self._file = HISTORY_FILE.open(path, _TABLES)

    @override
    def save(self, records: Sequence[ReviewRecord], *, only_new: bool = False) -> None:
        statement = _ADD if only_new else _PUT
        with self._file.transaction(durable=True) as connection:
            written = [
                one.kind for one in records if connection.execute(statement, _to_row(one)).rowcount
            ]
            _raise_version(connection, written)

    @override
    def remove(self, skill_id: str, slots: Sequence[ReviewSlot]) -> list[ReviewRecord]:
        rows = []
        with self._file.transaction(durable=True) as connection:
            for slot in slots:
                rows += connection.execute(
                    "DELETE FROM reviews WHERE skill_id = ? AND content_hash = ? AND topic = ? "  # noqa: S608 - fixed names
                    f"RETURNING {_COLUMNS}",
                    (skill_id, *slot),
                ).fetchall()
            removed = [_from_row(*row) for row in rows]
            _raise_version(connection, [one.kind for one in removed])
        return removed

    @override
    def get(self, skill_ids: Sequence[str]) -> Reviews:
        return self._read(json.dumps(list(skill_ids)))

    @override
    def get_all(self) -> Reviews:
        return self._read(None)

    def _read(self, skill_ids: str | None) -> Reviews:
        with self._file.reading() as connection:
            version = _read_version(connection)
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM reviews "  # noqa: S608 - fixed names
                "WHERE ?1 IS NULL OR skill_id IN (SELECT value FROM json_each(?1)) "
                "ORDER BY skill_id, content_hash, topic",
                (skill_ids,),
            ).fetchall()
        return Reviews(version, group_by_skill(_from_row(*row) for row in rows))

    @override
    def get_version(self) -> int:
        with self._file.reading() as connection:
            return _read_version(connection)

    @override
    def forget(self, skill_ids: Sequence[str]) -> None:
        with self._file.transaction(durable=True) as connection:
            gone = connection.execute(
                "DELETE FROM reviews WHERE skill_id IN (SELECT value FROM json_each(?)) "
                "RETURNING kind",
                (json.dumps(list(skill_ids)),),
            ).fetchall()
            _raise_version(connection, [ReviewKind(kind) for (kind,) in gone])

    @override
    def overwrite_deleted(self) -> None:
        self._file.overwrite_deleted()

    @override
    def close(self) -> None:
        self._file.close()


def group_by_skill(records: Iterable[ReviewRecord]) -> dict[str, tuple[ReviewRecord, ...]]:
    """Return records by skill; the records must be sorted by skill."""
    return {name: tuple(found) for name, found in groupby(records, lambda one: one.skill_id)}


def _read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT version FROM review_version").fetchone()[0])


def _raise_version(connection: sqlite3.Connection, changed: Iterable[ReviewKind]) -> None:
    """Raise the version if records of kinds that policy reads were changed."""
    if POLICY_KINDS.isdisjoint(changed):
        return
    connection.execute("UPDATE review_version SET version = version + 1")


def _to_row(one: ReviewRecord) -> tuple[object, ...]:
    findings = json.dumps(one.findings)
    return (
        *(one.skill_id, *one.slot, one.kind.value, one.rule, findings, one.seq),
        *(one.principal, one.reason, one.recorded),
    )


def _from_row(
    skill_id: str,
    content_hash: str,
    kind: str,
    rule: str,
    findings: str,
    seq: int,
    principal: str,
    reason: str,
    recorded: float,
) -> ReviewRecord:
    found = tuple(json.loads(findings))
    return ReviewRecord(
        *(skill_id, content_hash, ReviewKind(kind), rule, found, seq, principal, reason, recorded)
    )
