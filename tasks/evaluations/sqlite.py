"""Store of evaluations of a home, in a SQLite file."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from config.errors import NotFoundError
from tasks.evaluations.model import (
    Evaluation,
    EvaluationSummary,
    dump_prompts,
    dump_summary,
    load_prompts,
    load_summary,
)
from tasks.evaluations.protocol import (
    MAX_EVALUATIONS,
    ChangePrompt,
    EvaluationStore,
    change_run,
    describe_unknown_evaluation,
)
from tasks.shared_sqlite_file import SharedFile

_FILE = SharedFile(
    "evaluations", "move it away to start anew: it holds kept runs of `skillbus eval` alone", 1
)
_TABLES = """
CREATE TABLE IF NOT EXISTS evaluations (
    id TEXT PRIMARY KEY,
    made REAL NOT NULL,
    summary TEXT NOT NULL,
    prompts BLOB NOT NULL
);
"""


class SqliteEvaluationStore(EvaluationStore):
    """An `EvaluationStore` in one file. Threads may share it."""

    def __init__(self, path: Path | str) -> None:
        self._file = _FILE.open(path, _TABLES)

    @override
    def add(self, evaluation: Evaluation) -> None:
        summary = evaluation.summary
        row = (
            *(summary.evaluation_id, summary.made, dump_summary(summary)),
            dump_prompts(evaluation.prompts),
        )
        with self._file.transaction(durable=True) as connection:
            connection.execute("INSERT OR IGNORE INTO evaluations VALUES (?, ?, ?, ?)", row)
            connection.execute(
                "DELETE FROM evaluations WHERE id NOT IN "
                "(SELECT id FROM evaluations ORDER BY made DESC, id DESC LIMIT ?)",
                (MAX_EVALUATIONS,),
            )

    @override
    def list_summaries(self) -> list[EvaluationSummary]:
        rows = self._file.read("SELECT summary FROM evaluations ORDER BY made DESC, id DESC")
        return [load_summary(text) for (text,) in rows]

    @override
    def get(self, evaluation_id: str) -> Evaluation:
        rows = self._file.read(
            "SELECT summary, prompts FROM evaluations WHERE id = ?", (evaluation_id,)
        )
        for summary, prompts in rows:
            return Evaluation(load_summary(summary), load_prompts(prompts))
        raise NotFoundError(describe_unknown_evaluation(evaluation_id))

    @override
    def remove(self, evaluation_id: str) -> None:
        with self._file.transaction(durable=True) as connection:
            cursor = connection.execute("DELETE FROM evaluations WHERE id = ?", (evaluation_id,))
        if not cursor.rowcount:
            raise NotFoundError(describe_unknown_evaluation(evaluation_id))

    @override
    def change_prompts(self, change: ChangePrompt, naming: str = "") -> int:
        ids = self._file.read("SELECT id FROM evaluations")
        return sum(self._change_run(evaluation_id, change, naming) for (evaluation_id,) in ids)

    def _change_run(self, evaluation_id: str, change: ChangePrompt, naming: str) -> int:
        with self._file.transaction(durable=True) as connection:
            row = connection.execute(
                "SELECT prompts FROM evaluations WHERE id = ?", (evaluation_id,)
            ).fetchone()
            data, count = change_run(row[0], change, naming) if row else (b"", 0)
            if count:
                connection.execute(
                    "UPDATE evaluations SET prompts = ? WHERE id = ?", (data, evaluation_id)
                )
        return count

    @override
    def overwrite_deleted(self) -> None:
        self._file.overwrite_deleted()

    @override
    def close(self) -> None:
        self._file.close()
