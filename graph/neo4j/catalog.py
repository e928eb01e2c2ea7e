"""The catalog on Neo4j: sequence numbers, sources, skills and the change feed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial

from typing_extensions import override

from config.errors import UsageError
from graph.entry_filter import EntryCount, EntryFilter
from graph.named_statements import add_conditions
from graph.neo4j import transactions
from graph.neo4j.rows import (
    ENTRY_CONDITIONS,
    entries_from_rows,
    index_key,
    is_complete,
    source_from_row,
)
from graph.neo4j.statements import READ_BATCH, WRITE_BATCH, StatementRunner
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
from skills.batches import batches
from skills.judgement import Judgement, judgements_from_json
from skills.record import RevisionKey, select_latest_revisions

_SIGNATURES_PER_WRITE = 1_000


class Neo4jCatalog(StatementRunner, Catalog):
    """`graph.protocol.Catalog` on Neo4j."""

    # -- sequence numbers and sources
    @override
    def allocate_sequence(self, count: int) -> range:
        if count < 0:
            raise UsageError(f"cannot take {count} sequence numbers")
        last = int(self._write("allocate_sequence", count=count)[0][0])
        return range(last - count + 1, last + 1)

    @override
    def last_sequence(self) -> int:
        return int(self._read_from_leader("last_sequence")[0][0])

    @override
    def save_source(self, source: Source) -> None:
        values = asdict(source) | {"licences": list(source.licences)}
        [(kind, root)] = self._write("save_source", known=values)
        check_same_source(source, Source(source.source_id, kind, root))

    @override
    def read_access(self) -> SourceAccess:
        (sources, groups) = self._read("source_access")[0]
        return SourceAccess(
            sorted(map(source_from_row, sources), key=lambda one: one.source_id),
            {source_id: tuple(names) for source_id, names in groups},
        )

    @override
    def set_source_groups(self, source_id: str, groups: Sequence[str]) -> None:
        self._write("set_source_groups", source_id=source_id, groups=list(groups))

    @override
    def delete_source(self, source_id: str) -> None:
        left = self.count_states_by_source([source_id])[source_id][SkillState.PUBLISHED]
        if left:
            raise UsageError(f"source {source_id} still has {left} skills: remove them first")
        while self._write("delete_file_signatures", source_id=source_id, limit=READ_BATCH)[0][0]:
            pass
        self._write("delete_source", source_id=source_id)

    @override
    def get_file_signatures(self, source_id: str) -> dict[str, str]:
        # Pages begin after the path "", which is that of a skill at the root of its source.
        rows = [
            ["", signature] for (signature,) in self._read("root_signature", source_id=source_id)
        ]
        for page in self._pages("file_signatures", source_id=source_id):
            rows += filter(is_complete, page)
        return dict(rows)

    @override
    def update_file_signatures(
        self, source_id: str, seen: Mapping[str, str], gone: Iterable[str]
    ) -> None:
        for paths in batches(sorted(set(gone)), _SIGNATURES_PER_WRITE):
            self._write("forget_file_signatures", source_id=source_id, paths=paths)
        for rows in batches(sorted(seen.items()), _SIGNATURES_PER_WRITE):
            self._write(
                "save_file_signatures", source_id=source_id, rows=[list(row) for row in rows]
            )

    # -- the catalog
    @override
    def request_ingest(self, skills: Sequence[tuple[str, str, str]], seq: int) -> None:
        for rows in batches(sorted(set(skills)), WRITE_BATCH):
            self._write("request_ingest", rows=[list(row) for row in rows], seq=seq)

    @override
    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        if skill_ids is None:
            return [
                entry for page in self._pages("all_entries") for entry in entries_from_rows(page)
            ]
        return [
            entry
            for ids in batches(sorted(set(skill_ids)), READ_BATCH)
            for entry in entries_from_rows(self._read("entries", ids=ids)[0][0])
        ]

    @override
    def get_safety_records(self, skill_ids: Sequence[str]) -> list[SafetyRecord]:
        rows = self._read("safety_records", ids=sorted(set(skill_ids)))[0][0]
        return [
            SafetyRecord(skill_id, seq, level, licence, scanner, judgements_from_json(text))
            for skill_id, seq, level, licence, scanner, text in filter(is_complete, rows)
        ]

    @override
    def get_entries_under(self, source_id: str, path: str) -> list[CatalogEntry]:
        rows = self._read("entry_at", source_id=source_id, path=path)[0][0]
        name, more = ("entries_below", {"below": f"{path}/"}) if path else ("entries_of_source", {})
        for page in self._pages(name, source_id=source_id, **more):
            rows += page
        return sorted(entries_from_rows(rows), key=lambda entry: entry.skill_id)

    @override
    def list_entries(self, selection: EntryFilter, after: str, limit: int) -> list[CatalogEntry]:
        self._check_schema()
        chosen = [ENTRY_CONDITIONS[name] for name in selection.conditions]
        listing = add_conditions(self._statements[selection.statement], chosen)
        asked = selection.to_parameters(after, limit)
        if selection.name is not None:
            asked["name_key"] = index_key(str(asked["name_key"]))
        rows = self._server.read(listing, **asked)
        return entries_from_rows(rows[0][0])

    @override
    def count_entries(self) -> list[EntryCount]:
        return [
            EntryCount(row[0], SkillState(row[1]), *row[2:]) for row in self._read("count_entries")
        ]

    @override
    def count_states_by_source(self, source_ids: Sequence[str]) -> dict[str, dict[SkillState, int]]:
        counted: dict[str, dict[SkillState, int]] = {source_id: {} for source_id in source_ids}
        states = [state.value for state in SkillState]
        for source_id, state, many in self._read(
            "count_states_by_source", source_ids=list(counted), states=states
        ):
            counted[source_id][SkillState(state)] = many
        return counted

    @override
    def publish(self, publications: Sequence[Publication]) -> list[RevisionKey]:
        """Publishes at most WRITE_BATCH skills per transaction."""
        newest = select_latest_revisions(publications)
        moved: list[RevisionKey] = []
        for given in batches([newest[skill_id] for skill_id in sorted(newest)], WRITE_BATCH):
            moved += self._transact_with_locks(partial(transactions.publish, given=given))
        return moved

    @override
    def mark_unchanged(
        self, keys: Sequence[RevisionKey], hashes: Sequence[str] | None = None
    ) -> None:
        seen: Sequence[str | None] = [None] * len(keys) if hashes is None else hashes
        pairs = zip(keys, seen, strict=True)
        for rows in batches(
            sorted(([*key, seen] for key, seen in pairs), key=lambda row: row[:2]), WRITE_BATCH
        ):
            self._write("mark_unchanged", rows=rows)

    @override
    def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[str]:
        newest = select_latest_revisions(withdrawals)
        withdrawn: list[str] = []
        for given in batches([newest[skill_id] for skill_id in sorted(newest)], WRITE_BATCH):
            gone, touched = self._transact_with_locks(partial(transactions.withdraw, given=given))
            self._adjacency_cache.evict(touched)
            withdrawn += gone
        return withdrawn

    @override
    def list_awaiting_ingest(self, limit: int) -> list[CatalogEntry]:
        return entries_from_rows(self._read("awaiting_ingest", limit=limit)[0][0])

    @override
    def list_awaiting_vectors(self, limit: int) -> list[RevisionKey]:
        return self._keys("awaiting_vectors", limit=limit)

    @override
    def mark_vectors_stored(self, keys: Sequence[RevisionKey]) -> None:
        for rows in batches(sorted(keys), WRITE_BATCH):
            self._write("mark_vectors_stored", rows=[list(key) for key in rows])

    @override
    def list_awaiting_embedding(self, limit: int) -> list[RevisionKey]:
        return self._keys("awaiting_embedding", limit=limit)

    @override
    def mark_embedded(self, keys: Sequence[RevisionKey]) -> None:
        for rows in batches(sorted(keys), WRITE_BATCH):
            self._write("mark_embedded", rows=[list(key) for key in rows])

    @override
    def list_parsed_before(self, parser_version: int, limit: int) -> list[RevisionKey]:
        (found,) = self._read("parsed_before", parser=parser_version, limit=limit)
        return [RevisionKey(*pair) for pair in zip(*found, strict=True)]

    @override
    def count_parsed_before(self, parser_version: int) -> int:
        return int(self._read("count_parsed_before", parser=parser_version)[0][0])

    @override
    def mark_parsed(self, keys: Sequence[RevisionKey], parser_version: int) -> None:
        for rows in batches(sorted(keys), WRITE_BATCH):
            self._write("mark_parsed", rows=[list(key) for key in rows], parser=parser_version)

    @override
    def list_scanned_before(self, scanner_version: int, limit: int) -> list[RevisionKey]:
        return self._keys("scanned_before", scanner=scanner_version, limit=limit)

    @override
    def save_scans(self, scans: Mapping[RevisionKey, RevisionScan], scanner_version: int) -> None:
        for given in batches(sorted(scans.items()), WRITE_BATCH):
            self._transact(
                partial(transactions.save_scans, scans=given, scanner_version=scanner_version)
            )

    @override
    def get_rules_version(self) -> int:
        return int(self._read("rules_version")[0][0])

    @override
    def set_rules_version(self, scanner_version: int) -> None:
        self._write("set_rules_version", scanner=scanner_version)

    @override
    def save_judgements(
        self, model: str, judgements: Mapping[str, tuple[str, Judgement | None]]
    ) -> None:
        for given in batches([(key, *judgements[key]) for key in sorted(judgements)], WRITE_BATCH):
            self._transact_with_locks(
                partial(transactions.save_judgements, model=model, given=given)
            )

    @override
    def increment_uses(self, skill_ids: Sequence[str]) -> None:
        times = Counter(skill_ids)
        for ids in batches(sorted(times), WRITE_BATCH):
            self._write("increment_uses", rows=[[skill_id, times[skill_id]] for skill_id in ids])

    @override
    def prune_removed(self, age_seconds: float) -> list[str]:
        before = time.time() - age_seconds
        pruned: list[str] = []
        while rows := self._write("prune", before=before, limit=WRITE_BATCH):
            pruned += [str(skill_id) for (skill_id,) in rows]
        return pruned

    @override
    def overwrite_deleted(self) -> None:
        """Do nothing: clients cannot read deleted values, and the community edition cannot be made
        to overwrite them. They stay in its files until it reuses their space (decision 46)."""

    @override
    def get_counts(self) -> dict[str, int]:
        states = self._read("count_states", states=[state.value for state in SkillState])
        (rest,) = self._read("count_rest")
        return complete_counts({str(state): int(many) for state, many in states}, *rest)

    # -- the change feed
    @override
    def get_epoch(self) -> int:
        return int(self._read_from_leader("epoch_with_lock")[0][0])

    @override
    def get_changes_since(self, epoch: int) -> CatalogChanges:
        """Takes one round trip if nothing changed. Otherwise the epoch is read again with its lock:
        then all transactions up to that epoch are committed, so that none is missed. Later commits
        may be included, and are returned again next time."""
        now = self._check_epoch(epoch, self._read("epoch")[0][0])
        if now == epoch:
            changes = CatalogChanges(epoch, {}, frozenset())
        else:
            now = self._check_epoch(epoch, self._read_from_leader("epoch_with_lock")[0][0])
            pointers, rows = self._changes_after(epoch) if epoch else self._all_changes()
            changes = CatalogChanges(now, pointers, frozenset(rows))
        self._adjacency_cache.apply_changes(epoch, changes)
        return changes

    def _check_epoch(self, seen: int, now: int) -> int:
        if now < seen:
            raise UsageError(
                f"the catalog at {self._server.address} is at change {now}, this process has seen "
                f"change {seen}: an older copy was restored; start this process again"
            )
        return now

    def _changes_after(self, epoch: int) -> tuple[dict[str, int], list[str]]:
        ids, seqs = self._read("changed_pointers", epoch=epoch)[0]
        return dict(zip(ids, seqs, strict=True)), self._read("changed_rows", epoch=epoch)[0][0]

    def _all_changes(self) -> tuple[dict[str, int], list[str]]:
        pointers: dict[str, int] = {}
        rows: list[str] = []
        for page in self._pages("all_changes"):
            for skill_id, seq, pointed, linked in page:
                if skill_id is not None and pointed:
                    pointers[skill_id] = seq
                if skill_id is not None and linked:
                    rows.append(skill_id)
        return pointers, rows

    def _keys(self, name: str, **parameters: object) -> list[RevisionKey]:
        [(ids, seqs)] = self._read(name, **parameters)
        return [RevisionKey(*pair) for pair in zip(ids, seqs, strict=True)]
