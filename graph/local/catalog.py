"""The catalog in SQLite: sequence numbers, sources, skills and the change feed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from typing_extensions import override

from config.errors import UsageError
from graph.entry_filter import EntryCount, EntryFilter
from graph.local.rows import (
    ENTRY_COLUMNS,
    ENTRY_CONDITIONS,
    changes_from_rows,
    count_from_row,
    source_from_row,
    to_json_array,
)
from graph.local.statements import StatementRunner
from graph.local.transactions import Arguments, publish, save_judgements, save_scan, withdraw
from graph.named_statements import add_conditions
from graph.protocol import Catalog
from graph.records import (
    CatalogChanges,
    CatalogEntry,
    Publication,
    RevisionScan,
    SafetyRecord,
    SkillState,
    Source,
    SourceAccess,
    Withdrawal,
    check_same_source,
    complete_counts,
)
from graph.row_codec import entry_from_row
from skills.judgement import Judgement, judgements_from_json
from skills.record import RevisionKey, select_latest_revisions

_NO_LATER_EPOCH = 2**62
"""Epoch above that of any change, within the integers of SQLite."""


class SqliteCatalog(StatementRunner, Catalog):
    """`graph.protocol.Catalog` in one SQLite file."""

    # -- sequence numbers and sources
    @override
    def allocate_sequence(self, count: int) -> range:
        if count < 0:
            raise UsageError(f"cannot take {count} sequence numbers")
        [(last,)] = self._write("allocate_sequence", (count,))
        return range(last - count + 1, last + 1)

    @override
    def last_sequence(self) -> int:
        return self._read_number("seq")

    @override
    def save_source(self, source: Source) -> None:
        with self._transact() as transaction:
            known = {row[0]: source_from_row(row) for row in transaction.run("sources")}
            check_same_source(source, known.get(source.source_id, source))
            values = asdict(source) | {"licences": json.dumps(source.licences)}
            transaction.run("save_source", values)

    @override
    def read_access(self) -> SourceAccess:
        with self._database.read() as db:
            sources = db.execute(self._statements["sources"]).fetchall()
            groups = db.execute(self._statements["source_groups"]).fetchall()
        return SourceAccess(
            [source_from_row(row) for row in sources],
            {source_id: tuple(json.loads(names)) for source_id, names in groups},
        )

    @override
    def set_source_groups(self, source_id: str, groups: Sequence[str]) -> None:
        with self._transact() as transaction:
            transaction.run("next_epoch").fetchall()
            if groups:
                transaction.run("set_source_groups", (source_id, json.dumps(list(groups))))
            else:
                transaction.run("delete_source_groups", (source_id,))

    @override
    def delete_source(self, source_id: str) -> None:
        with self._transact() as transaction:
            (left,) = transaction.run("published_of_source", (source_id,)).fetchone()
            if left:
                raise UsageError(f"source {source_id} still has {left} skills: remove them first")
            transaction.run("delete_file_signatures", (source_id,))
            transaction.run("delete_source", (source_id,))

    @override
    def get_file_signatures(self, source_id: str) -> dict[str, str]:
        return dict(self._read("file_signatures", (source_id,)))

    @override
    def update_file_signatures(
        self, source_id: str, seen: Mapping[str, str], gone: Iterable[str]
    ) -> None:
        with self._transact() as transaction:
            transaction.run_each("forget_file_signature", [(source_id, path) for path in gone])
            transaction.run_each(
                "save_file_signature",
                [(source_id, path, signature) for path, signature in seen.items()],
            )

    # -- skills
    @override
    def request_ingest(self, skills: Sequence[tuple[str, str, str]], seq: int) -> None:
        with self._transact() as transaction:
            transaction.run_each("add_skill", skills)
            transaction.run_each(
                "request_ingest", [{"skill_id": skill_id, "seq": seq} for skill_id, _, _ in skills]
            )

    @override
    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        if skill_ids is None:
            return self._entries("all_entries")
        return self._entries("entries", (to_json_array(skill_ids),))

    @override
    def get_safety_records(self, skill_ids: Sequence[str]) -> list[SafetyRecord]:
        return [
            SafetyRecord(skill_id, seq, level, licence, scanner, judgements_from_json(text))
            for skill_id, seq, level, licence, scanner, text in self._read(
                "safety_records", (to_json_array(skill_ids),)
            )
        ]

    @override
    def get_entries_under(self, source_id: str, path: str) -> list[CatalogEntry]:
        name = "entries_under" if path else "entries_of_source"
        return self._entries(name, {"source_id": source_id, "path": path})

    @override
    def list_entries(self, selection: EntryFilter, after: str, limit: int) -> list[CatalogEntry]:
        conditions = [ENTRY_CONDITIONS[name] for name in selection.conditions]
        asked = selection.to_parameters(after, limit)
        return self._entries(selection.statement, asked, conditions)

    @override
    def count_entries(self) -> list[EntryCount]:
        return [count_from_row(row) for row in self._read("count_entries")]

    @override
    def count_states_by_source(self, source_ids: Sequence[str]) -> dict[str, dict[SkillState, int]]:
        asked = {"source_ids": to_json_array(source_ids), "states": to_json_array(SkillState)}
        counted: dict[str, dict[SkillState, int]] = {source_id: {} for source_id in source_ids}
        for source_id, state, many in self._read("count_states_by_source", asked):
            counted[source_id][SkillState(state)] = many
        return counted

    @override
    def publish(self, publications: Sequence[Publication]) -> list[RevisionKey]:
        if not publications:
            return []
        newest = select_latest_revisions(publications)
        with self._transact() as transaction:
            moved = [one.key for one in newest.values() if publish(transaction, one)]
            transaction.write_marks()
        return moved

    @override
    def mark_unchanged(
        self, keys: Sequence[RevisionKey], hashes: Sequence[str] | None = None
    ) -> None:
        seen = [None] * len(keys) if hashes is None else list(hashes)
        self._write_each(
            "mark_unchanged",
            [
                {"skill_id": key.skill_id, "seq": key.seq, "content_hash": content_hash}
                for key, content_hash in zip(keys, seen, strict=True)
            ],
        )

    @override
    def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[str]:
        if not withdrawals:
            return []
        with self._transact() as transaction:
            gone = [one.key.skill_id for one in withdrawals if withdraw(transaction, one)]
            transaction.write_marks()
        return gone

    @override
    def list_awaiting_ingest(self, limit: int) -> list[CatalogEntry]:
        return self._entries("awaiting_ingest", (limit,))

    @override
    def list_awaiting_vectors(self, limit: int) -> list[RevisionKey]:
        return self._keys("awaiting_vectors", {"limit": limit})

    @override
    def mark_vectors_stored(self, keys: Sequence[RevisionKey]) -> None:
        self._write_each("mark_vectors_stored", keys)

    @override
    def list_awaiting_embedding(self, limit: int) -> list[RevisionKey]:
        return self._keys("awaiting_embedding", {"limit": limit})

    @override
    def mark_embedded(self, keys: Sequence[RevisionKey]) -> None:
        self._write_each("mark_embedded", keys)

    @override
    def list_parsed_before(self, parser_version: int, limit: int) -> list[RevisionKey]:
        return self._keys("parsed_before", {"parser": parser_version, "limit": limit})

    @override
    def count_parsed_before(self, parser_version: int) -> int:
        [(count,)] = self._read("count_parsed_before", (parser_version,))
        return int(count)

    @override
    def mark_parsed(self, keys: Sequence[RevisionKey], parser_version: int) -> None:
        self._write_each(
            "mark_parsed", [{**key._asdict(), "parser": parser_version} for key in keys]
        )

    @override
    def list_scanned_before(self, scanner_version: int, limit: int) -> list[RevisionKey]:
        return self._keys("scanned_before", {"scanner": scanner_version, "limit": limit})

    @override
    def save_scans(self, scans: Mapping[RevisionKey, RevisionScan], scanner_version: int) -> None:
        with self._transact() as transaction:
            for key, scan in scans.items():
                save_scan(transaction, key, scan, scanner_version)

    @override
    def get_rules_version(self) -> int:
        return self._read_number("rules_version")

    @override
    def set_rules_version(self, scanner_version: int) -> None:
        self._write("set_rules_version", (scanner_version,))

    @override
    def save_judgements(
        self, model: str, judgements: Mapping[str, tuple[str, Judgement | None]]
    ) -> None:
        with self._transact() as transaction:
            save_judgements(transaction, model, judgements)

    @override
    def increment_uses(self, skill_ids: Sequence[str]) -> None:
        self._write_each("increment_uses", [(skill_id,) for skill_id in sorted(skill_ids)])

    @override
    def prune_removed(self, age_seconds: float) -> list[str]:
        return [skill_id for (skill_id,) in self._write("prune", (time.time() - age_seconds,))]

    @override
    def overwrite_deleted(self) -> None:
        self._database.overwrite_deleted()

    @override
    def get_counts(self) -> dict[str, int]:
        with self._database.read() as db:
            states = dict(db.execute(self._statements["count_states"]).fetchall())
            rest = db.execute(self._statements["count_rest"]).fetchone()
        return complete_counts(states, *rest)

    # -- the change feed
    @override
    def get_epoch(self) -> int:
        return self.get_changes_since(_NO_LATER_EPOCH).epoch

    @override
    def get_changes_since(self, epoch: int) -> CatalogChanges:
        return changes_from_rows(self._read("changes", {"epoch": epoch}))

    def _entries(
        self, name: str, arguments: Arguments = (), conditions: Iterable[str] = ()
    ) -> list[CatalogEntry]:
        selection = add_conditions(self._statements[name], conditions)
        with self._database.read() as db:
            cursor = db.execute(f"SELECT {ENTRY_COLUMNS} {selection}", arguments)
            return [entry_from_row(row) for row in cursor]

    def _keys(self, name: str, arguments: Arguments) -> list[RevisionKey]:
        return [RevisionKey(*row) for row in self._read(name, arguments)]

    def _read_number(self, key: str) -> int:
        [(value,)] = self._read("meta_value", (key,))
        return int(value)
