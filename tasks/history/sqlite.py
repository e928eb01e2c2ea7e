"""History of the embedded deployment, in the file `history.db` of the home."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from search.revision_history import (
    HistoryLimits,
    KeptRevision,
    Pin,
    RevisionHistory,
    RevisionSize,
    select_kept,
)
from skills import record_codec
from skills.record import RevisionKey
from tasks.shared_sqlite_file import SharedFile

HISTORY_FILE = SharedFile(
    "history of the skills",
    "move it away to start anew: earlier revisions, pins and reviews are lost, the library is not",
    version=1,
)
_TABLES = """
CREATE TABLE IF NOT EXISTS revisions (
    skill_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    content_hash TEXT NOT NULL,
    published REAL NOT NULL,
    parsed BLOB NOT NULL,
    PRIMARY KEY (skill_id, seq)
);
CREATE TABLE IF NOT EXISTS pins (
    skill_id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    content_hash TEXT NOT NULL,
    reason TEXT NOT NULL,
    pinned REAL NOT NULL
) WITHOUT ROWID;
"""
_COLUMNS = "skill_id, seq, content_hash, published, parsed"
_INSERT = "INSERT OR IGNORE INTO revisions VALUES (?, ?, ?, ?, ?)"
_NEWEST = "SELECT seq, content_hash FROM revisions WHERE skill_id = ? ORDER BY seq DESC LIMIT 1"


class SqliteRevisionHistory(RevisionHistory):
    """A `RevisionHistory` in one file, shared by the threads of this process and by other
    processes."""

    def __init__(self, path: Path | str, limits: HistoryLimits) -> None:
        """Open the file; raises as `SharedFile.open` does."""
        self._limits = limits
        self._file = HISTORY_FILE.open(path, _TABLES)

    @override
    def keep(self, revisions: Sequence[KeptRevision]) -> None:
        if not revisions:
            return
        rows = [_to_row(one) for one in revisions]
        with self._file.transaction(durable=True) as connection:
            connection.executemany(_INSERT, rows)
            for skill_id in sorted({one.key.skill_id for one in revisions}):
                self._prune(connection, skill_id)

    @override
    def hold(self, revision: KeptRevision, above: int) -> int:
        skill_id, seq = revision.key
        with self._file.transaction(durable=True) as connection:
            newest = connection.execute(_NEWEST, (skill_id,)).fetchone()
            if newest is not None and newest[0] > above and newest[1] == revision.content_hash:
                return int(newest[0])
            connection.execute(_INSERT, _to_row(revision))
            self._prune(connection, skill_id)
        return seq

    def _prune(self, connection: sqlite3.Connection, skill_id: str) -> None:
        rows = connection.execute(
            "SELECT seq, content_hash, length(parsed) FROM revisions WHERE skill_id = ?",
            (skill_id,),
        ).fetchall()
        kept = select_kept((RevisionSize(*row) for row in rows), self._limits)
        kept |= {
            seq
            for (seq,) in connection.execute("SELECT seq FROM pins WHERE skill_id = ?", (skill_id,))
        }
        connection.executemany(
            "DELETE FROM revisions WHERE skill_id = ? AND seq = ?",
            [(skill_id, seq) for seq, *_ in rows if seq not in kept],
        )

    @override
    def find_kept(self, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        rows = self._file.read(
            "SELECT r.skill_id, r.seq FROM json_each(?) k JOIN revisions r "
            "ON r.skill_id = k.value ->> 0 AND r.seq = k.value ->> 1",
            (json.dumps(keys),),
        )
        return {RevisionKey(*row) for row in rows}

    @override
    def list_revisions(self, skill_id: str) -> list[KeptRevision]:
        rows = self._file.read(
            f"SELECT {_COLUMNS} FROM revisions WHERE skill_id = ? ORDER BY seq DESC",  # noqa: S608 - fixed names
            (skill_id,),
        )
        return [_read_row(*row) for row in rows]

    @override
    def set_pin(self, pin: Pin) -> bool:
        with self._file.transaction(durable=True) as connection:
            return bool(
                connection.execute(
                    "INSERT OR REPLACE INTO pins SELECT ?1, ?2, ?3, ?4, ?5 "
                    "WHERE EXISTS (SELECT 1 FROM revisions WHERE skill_id = ?1 AND seq = ?2)",
                    (pin.skill_id, pin.seq, pin.content_hash, pin.reason, pin.pinned),
                ).rowcount
            )

    @override
    def remove_pin(self, skill_id: str) -> bool:
        with self._file.transaction(durable=True) as connection:
            gone = connection.execute("DELETE FROM pins WHERE skill_id = ?", (skill_id,))
            self._prune(connection, skill_id)
            return gone.rowcount == 1

    @override
    def get_pins(self, skill_ids: Sequence[str] | None = None) -> dict[str, Pin]:
        asked = None if skill_ids is None else json.dumps(list(skill_ids))
        rows = self._file.read(
            "SELECT skill_id, seq, content_hash, reason, pinned FROM pins "
            "WHERE ?1 IS NULL OR skill_id IN (SELECT value FROM json_each(?1)) "
            "ORDER BY skill_id",
            (asked,),
        )
        return {row[0]: Pin(*row) for row in rows}

    @override
    def forget(self, skill_ids: Sequence[str]) -> int:
        if not skill_ids:
            return 0
        with self._file.transaction(durable=True) as connection:
            rows = [(one,) for one in set(skill_ids)]
            connection.executemany("DELETE FROM pins WHERE skill_id = ?", rows)
            return connection.executemany("DELETE FROM revisions WHERE skill_id = ?", rows).rowcount

    @override
    def overwrite_deleted(self) -> None:
        self._file.overwrite_deleted()

    @override
    def read_all(self) -> Iterator[KeptRevision]:
        after = ("", 0)
        while True:
            rows = self._file.read(
                f"SELECT {_COLUMNS} FROM revisions WHERE (skill_id, seq) > (?, ?) "  # noqa: S608 - fixed names
                "ORDER BY skill_id, seq LIMIT 1",
                after,
            )
            if not rows:
                return
            after = rows[0][:2]
            yield _read_row(*rows[0])

    @override
    def max_seq(self) -> int:
        [(seq,)] = self._file.read("SELECT max(seq) FROM revisions")
        return int(seq or 0)

    @override
    def close(self) -> None:
        self._file.close()


def _to_row(one: KeptRevision) -> tuple[object, ...]:
    return (*one.key, one.content_hash, one.published, record_codec.dump(one.parsed))


def _read_row(
    skill_id: str, seq: int, content_hash: str, published: float, parsed: bytes
) -> KeptRevision:
    key = RevisionKey(skill_id, seq)
    return KeptRevision(key, content_hash, record_codec.load(parsed), published)
