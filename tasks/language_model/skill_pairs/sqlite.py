"""Store of pairs of skills of the embedded deployment, in the file of the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from typing_extensions import override

from skills.bundle.rejection import RejectionReason
from tasks.language_model.answer_store import RefinementKind
from tasks.language_model.answers_file import ANSWERS_FILE
from tasks.language_model.skill_pairs import protocol
from tasks.language_model.skill_pairs.protocol import (
    ComparedPair,
    ContentPair,
    PairVerdict,
    RejectedPair,
    SkillPairStore,
)

_TABLES = """
CREATE TABLE IF NOT EXISTS pair_verdicts (
    model TEXT NOT NULL,
    version INTEGER NOT NULL,
    one TEXT NOT NULL,
    other TEXT NOT NULL,
    one_id TEXT NOT NULL,
    other_id TEXT NOT NULL,
    asker TEXT NOT NULL,
    place INTEGER NOT NULL,
    type TEXT,
    first INTEGER NOT NULL DEFAULT 1,
    evidence TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (model, version, one, other)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pair_verdicts_by_other ON pair_verdicts (model, version, other)
    WHERE type != '';
CREATE TABLE IF NOT EXISTS rejecting_queries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    query_key TEXT NOT NULL UNIQUE
);
DROP TABLE IF EXISTS rejections;
CREATE TABLE IF NOT EXISTS compared_pairs (
    one TEXT NOT NULL,
    other TEXT NOT NULL,
    reason TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (one, other, reason, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS compared_pairs_by_query ON compared_pairs (number);
"""

# Earlier versions stored pairs before they asked about them, with an asker, and without a type.
_SAVE_VERDICT = """
INSERT INTO pair_verdicts VALUES (?, ?, ?, ?, ?, ?, '', 0, ?, ?, ?)
ON CONFLICT (model, version, one, other) DO UPDATE
    SET type = excluded.type, first = excluded.first, evidence = excluded.evidence
    WHERE type IS NULL
"""


class SqliteSkillPairs(SkillPairStore):
    """A `SkillPairStore` in one file, shared by the threads of this process and by other
    processes."""

    def __init__(self, path: Path | str) -> None:
        """Open the file; raises as `SharedFile.open` does."""
        self._file = ANSWERS_FILE.open(path, _TABLES)

    @override
    def find_known(self, kind: RefinementKind, pairs: Sequence[ContentPair]) -> set[ContentPair]:
        rows = self._file.read(
            "SELECT v.one, v.other FROM json_each(?) p JOIN pair_verdicts v "
            "ON v.one = p.value ->> 0 AND v.other = p.value ->> 1 "
            "WHERE v.model = ? AND v.version = ? AND v.type IS NOT NULL",
            (json.dumps(pairs), kind.model, kind.version),
        )
        return {(one, other) for one, other in rows}

    @override
    def save_verdicts(self, kind: RefinementKind, verdicts: Sequence[PairVerdict]) -> None:
        rows = [
            (
                *(kind.model, kind.version, *one.hashes, *one.skill_ids),
                *(one.type, one.first, one.evidence),
            )
            for one in verdicts
        ]
        with self._file.transaction() as connection:
            connection.executemany(_SAVE_VERDICT, rows)
        self._file.sync()

    @override
    def find_links(
        self, kind: RefinementKind, hashes: Sequence[str]
    ) -> dict[str, list[PairVerdict]]:
        found: dict[str, list[PairVerdict]] = {one: [] for one in hashes}
        with self._file.reading() as connection:
            for side in ("one", "other"):
                rows = connection.execute(
                    f"SELECT v.{side}, v.one, v.other, one_id, other_id, v.type, first, evidence "  # noqa: S608 - fixed names
                    f"FROM json_each(?) h JOIN pair_verdicts v ON v.{side} = h.value "
                    "WHERE v.model = ? AND v.version = ? AND v.type != ''",
                    (json.dumps(list(found)), kind.model, kind.version),
                ).fetchall()
                for asked, one, other, one_id, other_id, link, first, evidence in rows:
                    found[asked].append(
                        PairVerdict((one, other), (one_id, other_id), link, bool(first), evidence)
                    )
        for verdicts in found.values():
            verdicts.sort(key=lambda one: one.hashes)
        return found

    @override
    def list_linked(self, kind: RefinementKind) -> Iterator[str]:
        rows = self._file.read(
            "SELECT one FROM pair_verdicts WHERE model = ?1 AND version = ?2 AND type != '' "
            "UNION SELECT other FROM pair_verdicts "
            "WHERE model = ?1 AND version = ?2 AND type != ''",
            (kind.model, kind.version),
        )
        return (content_hash for (content_hash,) in rows)

    @override
    def record(self, query_key: str, compared: Set[ComparedPair]) -> None:
        with self._file.transaction() as connection:
            row = connection.execute(
                "INSERT OR IGNORE INTO rejecting_queries (query_key) VALUES (?) RETURNING number",
                (query_key,),
            ).fetchone()
            if row is None:
                return
            (number,) = row
            connection.executemany(
                "INSERT INTO compared_pairs VALUES (?, ?, ?, ?)",
                [(one, other, reason.value, number) for one, other, reason in sorted(compared)],
            )
            oldest = (number - protocol.MAX_QUERIES,)
            connection.execute("DELETE FROM compared_pairs WHERE number <= ?", oldest)
            connection.execute("DELETE FROM rejecting_queries WHERE number <= ?", oldest)

    @override
    def list_rejected_pairs(self, min_queries: int, limit: int) -> list[RejectedPair]:
        rows = self._file.read(
            "SELECT one, other, reason, count(*) AS queries FROM compared_pairs "
            "GROUP BY one, other, reason HAVING queries >= ? "
            "ORDER BY queries DESC, one, other, reason LIMIT ?",
            (min_queries, limit),
        )
        return [
            RejectedPair((one, other), RejectionReason(reason), queries)
            for one, other, reason, queries in rows
        ]

    @override
    def forget(self, hashes: Sequence[str]) -> int:
        with self._file.transaction() as connection:
            deleted = connection.execute(
                "DELETE FROM pair_verdicts WHERE one IN (SELECT value FROM json_each(?1)) "
                "OR other IN (SELECT value FROM json_each(?1))",
                (json.dumps(list(hashes)),),
            ).rowcount
        self._file.overwrite_deleted()
        return deleted

    @override
    def close(self) -> None:
        self._file.close()
