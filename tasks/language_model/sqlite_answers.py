"""Store of answers of the embedded deployment, in the file `answers.db` of the home."""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from config.language_model_settings import ModelStage
from tasks.language_model.answer_store import (
    AnswerStore,
    RefinementKind,
    StageUsage,
    StoredAnswer,
)
from tasks.language_model.answers_file import ANSWERS_FILE
from tasks.language_model.protocol import TokenUsage

_TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT NOT NULL UNIQUE,
    stage TEXT NOT NULL,
    model TEXT NOT NULL,
    text TEXT NOT NULL,
    reason TEXT NOT NULL,
    saved REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS reservations (
    id TEXT PRIMARY KEY,
    day TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    expires REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS token_usage (
    day TEXT NOT NULL,
    stage TEXT NOT NULL,
    calls INTEGER NOT NULL DEFAULT 0,
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    completion_tokens INTEGER NOT NULL DEFAULT 0,
    stored INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (day, stage)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refinements (
    stage TEXT NOT NULL,
    model TEXT NOT NULL,
    version INTEGER NOT NULL,
    subject TEXT NOT NULL,
    document TEXT NOT NULL,
    UNIQUE (stage, model, version, subject)
);
"""


class SqliteAnswerStore(AnswerStore):
    """An `AnswerStore` in one file, shared by the threads of this process and by other
    processes."""

    def __init__(self, path: Path | str) -> None:
        """Open the file; raises as `SharedFile.open` does."""
        self._file = ANSWERS_FILE.open(path, _TABLES)

    @override
    def get_answer(self, key: str) -> StoredAnswer | None:
        rows = self._file.read("SELECT text, reason FROM answers WHERE key = ?", (key,))
        return StoredAnswer(*rows[0]) if rows else None

    @override
    def save_answer(self, key: str, stage: ModelStage, model: str, answer: StoredAnswer) -> None:
        # A kill loses nothing that is committed, so only the commit must be soon.
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?)",
                (key, stage, model, answer.text, answer.reason, time.time()),
            )
        self._file.sync()

    @override
    def reserve_tokens(self, day: str, tokens: int, limit: int, seconds: float) -> str | None:
        now = time.time()
        reservation = uuid.uuid4().hex
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM reservations WHERE expires <= ?", (now,))
            if limit:
                (spent,) = connection.execute(
                    "SELECT (SELECT coalesce(sum(prompt_tokens + completion_tokens), 0) "
                    "FROM token_usage WHERE day = ?1) "
                    "+ (SELECT coalesce(sum(tokens), 0) FROM reservations WHERE day = ?1)",
                    (day,),
                ).fetchone()
                if spent + tokens > limit:
                    return None
            connection.execute(
                "INSERT INTO reservations VALUES (?, ?, ?, ?)",
                (reservation, day, tokens, now + seconds),
            )
        return reservation

    @override
    def settle(
        self, reservation: str, day: str, stage: ModelStage, usage: TokenUsage, calls: int
    ) -> None:
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM reservations WHERE id = ?", (reservation,))
            _add_usage(connection, day, stage, StageUsage(calls, usage.prompt, usage.completion))

    @override
    def count_stored(self, day: str, stage: ModelStage) -> None:
        with self._file.transaction() as connection:
            _add_usage(connection, day, stage, StageUsage(stored=1))

    @override
    def get_usage(self, day: str) -> dict[str, StageUsage]:
        rows = self._file.read(
            "SELECT stage, calls, prompt_tokens, completion_tokens, stored "
            "FROM token_usage WHERE day = ? ORDER BY stage",
            (day,),
        )
        return {row[0]: StageUsage(*row[1:]) for row in rows}

    @override
    def get_refinements(
        self, kind: RefinementKind, subjects: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        rows = self._file.read(
            "SELECT subject, document FROM refinements "
            "WHERE stage = ? AND model = ? AND version = ? "
            "AND subject IN (SELECT value FROM json_each(?))",
            (kind.stage, kind.model, kind.version, json.dumps(list(subjects))),
        )
        return {subject: json.loads(document) for subject, document in rows}

    @override
    def save_refinements(
        self, kind: RefinementKind, documents: Mapping[str, Mapping[str, Any]]
    ) -> None:
        rows = [
            (kind.stage, kind.model, kind.version, subject, json.dumps(document))
            for subject, document in documents.items()
        ]
        with self._file.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO refinements VALUES (?, ?, ?, ?, ?)", rows)
        self._file.sync()

    @override
    def forget(self, subjects: Sequence[str]) -> int:
        with self._file.transaction() as connection:
            answers = connection.execute("DELETE FROM answers").rowcount
            refinements = connection.execute(
                "DELETE FROM refinements WHERE subject IN (SELECT value FROM json_each(?))",
                (json.dumps(list(subjects)),),
            ).rowcount
        self._file.overwrite_deleted()
        return answers + refinements

    @override
    def close(self) -> None:
        self._file.close()


def _add_usage(
    connection: sqlite3.Connection, day: str, stage: ModelStage, usage: StageUsage
) -> None:
    connection.execute(
        "INSERT INTO token_usage VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (day, stage) DO UPDATE SET "
        "calls = calls + excluded.calls, "
        "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
        "completion_tokens = completion_tokens + excluded.completion_tokens, "
        "stored = stored + excluded.stored",
        (day, stage, usage.calls, usage.prompt_tokens, usage.completion_tokens, usage.stored),
    )
