"""Dead letters in the journal's SQLite file."""

from __future__ import annotations

import json
from typing import Any

from typing_extensions import override

from config.errors import NotFoundError
from tasks.journal import protocol
from tasks.journal.protocol import DeadLetter, DeadLetterStore, quote_skill
from tasks.journal.sqlite_database import JournalDatabase


class SqliteDeadLetters(DeadLetterStore):
    """Dead letters in the table `letters`."""

    def __init__(self, database: JournalDatabase) -> None:
        self._database = database

    @override
    def add_dead_letter(self, letter: DeadLetter) -> None:
        with self._database.transaction(durable=True) as connection:
            connection.execute(
                "INSERT OR REPLACE INTO letters VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    letter.id,
                    letter.task,
                    json.dumps(letter.ids, ensure_ascii=False),
                    letter.reason,
                    letter.attempts,
                    letter.trace_id,
                    letter.body,
                    letter.failed_at,
                ),
            )
            connection.execute(
                "DELETE FROM letters WHERE id IN "
                "(SELECT id FROM letters ORDER BY buried DESC, id DESC LIMIT -1 OFFSET ?)",
                (protocol.MAX_DEAD_LETTERS,),
            )

    @override
    def list_dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM letters ORDER BY buried DESC, id DESC LIMIT ?", (limit,)
            ).fetchall()
        return [_to_dead_letter(row) for row in rows]

    @override
    def get_dead_letter(self, letter_id: str) -> DeadLetter:
        with self._database.reading() as connection:
            row = connection.execute("SELECT * FROM letters WHERE id = ?", (letter_id,)).fetchone()
        if row is None:
            raise NotFoundError(f"no dead letter {letter_id!r}; `skillbus dead list` lists them")
        return _to_dead_letter(row)

    @override
    def count_dead_letters(self) -> int:
        with self._database.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM letters").fetchone()[0])

    @override
    def delete_dead_letter(self, letter_id: str) -> bool:
        with self._database.transaction() as connection:
            deleted = connection.execute("DELETE FROM letters WHERE id = ?", (letter_id,))
            return deleted.rowcount == 1

    @override
    def forget_dead_letters(self, skill_id: str) -> int:
        named = quote_skill(skill_id)
        with self._database.transaction(durable=True) as connection:
            return connection.execute(
                "DELETE FROM letters WHERE instr(ids, ?1) OR instr(body, ?1)", (named,)
            ).rowcount


def _to_dead_letter(row: tuple[Any, ...]) -> DeadLetter:
    return DeadLetter(row[0], row[1], tuple(json.loads(row[2])), *row[3:])
