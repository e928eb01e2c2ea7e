"""Embedded store of catalog and links in one SQLite file."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from config.errors import UsageError
from graph.adjacency_cache import CACHED_ROWS, AdjacencyCache
from graph.entry_filter import EntryCount, EntryFilter
from graph.local.database import Database
from graph.local.link_reader import SqliteLinkReader, read_changes
from graph.local.link_state import SqliteLinkState
from graph.local.publish import (
    Transaction,
    publish,
    replace_links,
    save_judgements,
    save_scan,
    withdraw,
)
from graph.local.rows import (
    ENTRY_COLUMNS,
    ENTRY_CONDITIONS,
    count_from_row,
    entry_from_row,
    features_from_row,
    link_from_row,
    to_json_array,
)
from graph.local.sources import SqliteSources
from graph.named_statements import add_conditions, load_statements
from graph.protocol import SkillGraph
from graph.records import (
    CatalogChanges,
    CatalogEntry,
    Link,
    LinkFeatures,
    LinkType,
    Publication,
    RevisionScan,
    SafetyRecord,
    SkillState,
    complete_counts,
)
from graph.skill_names import normalise_name
from skills.judgement import Judgement, judgements_from_json
from skills.record import RevisionKey, select_latest_revisions

_NO_LATER_EPOCH = 2**62
"""Epoch above that of any change, within the integers of SQLite."""


class SqliteSkillGraph(SqliteSources, SqliteLinkReader, SqliteLinkState, SkillGraph):
    """`graph.protocol.SkillGraph` on SQLite; safe to share among threads.

    One process may write; any number may read at the same time with `writable=False`.
    identity: value of `Database.read_identity`.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Open or create the file; raises the errors of `Database`."""
        self._sql = load_statements("graph.local", "queries.sql")
        self._database = Database(path, writable=writable)
        self._adjacency = AdjacencyCache(CACHED_ROWS)
        self.identity = self._database.read_identity()

    # -- sequence numbers
    @override
    def allocate_sequence(self, count: int) -> range:
        if count < 0:
            raise UsageError(f"cannot take {count} sequence numbers")
        with self._database.write() as db:
            (last,) = db.execute(self._sql["allocate_sequence"], (count,)).fetchone()
        return range(last - count + 1, last + 1)

    @override
    def last_sequence(self) -> int:
        return self._read_number("seq")

    # -- the catalog
    @override
    def request_ingest(self, skills: Sequence[tuple[str, str, str]], seq: int) -> None:
        with self._database.write() as db:
            db.executemany(self._sql["add_skill"], skills)
            db.executemany(
                self._sql["request_ingest"],
                [{"skill_id": skill_id, "seq": seq} for skill_id, _, _ in skills],
            )

    @override
    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        if skill_ids is None:
            return self._entries(self._sql["all_entries"], ())
        return self._entries(self._sql["entries"], (to_json_array(skill_ids),))

    @override
    def get_safety_records(self, skill_ids: Sequence[str]) -> list[SafetyRecord]:
        with self._database.read() as db:
            rows = db.execute(self._sql["safety_records"], (to_json_array(skill_ids),))
            return [
                SafetyRecord(skill_id, seq, level, licence, scanner, judgements_from_json(text))
                for skill_id, seq, level, licence, scanner, text in rows
            ]

    @override
    def get_entries_under(self, source_id: str, path: str) -> list[CatalogEntry]:
        name = "entries_under" if path else "entries_of_source"
        return self._entries(self._sql[name], {"source_id": source_id, "path": path})

    @override
    def list_entries(self, selection: EntryFilter, after: str, limit: int) -> list[CatalogEntry]:
        chosen = [ENTRY_CONDITIONS[name] for name in selection.conditions]
        listing = add_conditions(self._sql[selection.statement], chosen)
        return self._entries(listing, selection.to_parameters(after, limit))

    @override
    def count_entries(self) -> list[EntryCount]:
        with self._database.read() as db:
            return [count_from_row(row) for row in db.execute(self._sql["count_entries"])]

    @override
    def count_states_by_source(self, source_ids: Sequence[str]) -> dict[str, dict[SkillState, int]]:
        asked = {"source_ids": to_json_array(source_ids), "states": to_json_array(SkillState)}
        counted: dict[str, dict[SkillState, int]] = {source_id: {} for source_id in source_ids}
        with self._database.read() as db:
            for source_id, state, many in db.execute(self._sql["count_states_by_source"], asked):
                counted[source_id][SkillState(state)] = many
        return counted

    @override
    def publish(self, publications: Sequence[Publication]) -> list[RevisionKey]:
        if not publications:
            return []
        newest = select_latest_revisions(publications)
        with self._database.write() as db:
            transaction = Transaction(db, self._sql)
            moved = [one.key for one in newest.values() if publish(transaction, one)]
            transaction.write_marks()
        return moved

    @override
    def mark_unchanged(
        self, keys: Sequence[RevisionKey], hashes: Sequence[str] | None = None
    ) -> None:
        seen = [None] * len(keys) if hashes is None else list(hashes)
        with self._database.write() as db:
            db.executemany(
                self._sql["mark_unchanged"],
                [
                    {"skill_id": key.skill_id, "seq": key.seq, "content_hash": content_hash}
                    for key, content_hash in zip(keys, seen, strict=True)
                ],
            )

    @override
    def remove(self, keys: Sequence[RevisionKey]) -> list[str]:
        gone = [(key, *key.skill_id.partition(":")[::2], "") for key in keys]
        return self._withdraw(gone, SkillState.REMOVED)

    @override
    def record_failures(self, failures: Sequence[tuple[RevisionKey, str, str, str]]) -> None:
        self._withdraw(failures, SkillState.FAILED)

    @override
    def record_held(self, held: Sequence[tuple[RevisionKey, str, str, str]]) -> None:
        self._withdraw(held, SkillState.HELD)

    def _withdraw(
        self, skills: Sequence[tuple[RevisionKey, str, str, str]], state: SkillState
    ) -> list[str]:
        """Withdraw skills, each with its source id, path and reason; returns those that were
        published."""
        if not skills:
            return []
        with self._database.write() as db:
            transaction = Transaction(db, self._sql)
            withdrawn = [
                key.skill_id
                for key, source_id, path, reason in skills
                if withdraw(transaction, key, source_id, path, state, reason)
            ]
            transaction.write_marks()
        return withdrawn

    @override
    def list_awaiting_ingest(self, limit: int) -> list[CatalogEntry]:
        return self._entries(self._sql["awaiting_ingest"], (limit,))

    @override
    def list_awaiting_vectors(self, limit: int) -> list[RevisionKey]:
        return self._keys("awaiting_vectors", {"limit": limit})

    @override
    def mark_vectors_stored(self, keys: Sequence[RevisionKey]) -> None:
        with self._database.write() as db:
            db.executemany(
                "UPDATE skills SET vectors = 1 WHERE skill_id = ? AND seq = ? AND seq > 0", keys
            )

    @override
    def list_awaiting_embedding(self, limit: int) -> list[RevisionKey]:
        return self._keys("awaiting_embedding", {"limit": limit})

    @override
    def mark_embedded(self, keys: Sequence[RevisionKey]) -> None:
        with self._database.write() as db:
            db.executemany(
                "UPDATE skills SET paged = 1 WHERE skill_id = ? AND seq = ? AND seq > 0", keys
            )

    @override
    def list_parsed_before(self, parser_version: int, limit: int) -> list[RevisionKey]:
        return self._keys("parsed_before", {"parser": parser_version, "limit": limit})

    @override
    def count_parsed_before(self, parser_version: int) -> int:
        with self._database.read() as db:
            (count,) = db.execute(self._sql["count_parsed_before"], (parser_version,)).fetchone()
        return int(count)

    @override
    def mark_parsed(self, keys: Sequence[RevisionKey], parser_version: int) -> None:
        with self._database.write() as db:
            db.executemany(
                self._sql["mark_parsed"],
                [{**key._asdict(), "parser": parser_version} for key in keys],
            )

    @override
    def list_scanned_before(self, scanner_version: int, limit: int) -> list[RevisionKey]:
        return self._keys("scanned_before", {"scanner": scanner_version, "limit": limit})

    @override
    def save_scans(self, scans: Mapping[RevisionKey, RevisionScan], scanner_version: int) -> None:
        with self._database.write() as db:
            transaction = Transaction(db, self._sql)
            for key, scan in scans.items():
                save_scan(transaction, key, scan, scanner_version)

    @override
    def get_rules_version(self) -> int:
        return self._read_number("rules_version")

    @override
    def set_rules_version(self, scanner_version: int) -> None:
        with self._database.write() as db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'rules_version'", (scanner_version,))

    @override
    def save_judgements(
        self, model: str, judgements: Mapping[str, tuple[str, Judgement | None]]
    ) -> None:
        with self._database.write() as db:
            save_judgements(Transaction(db, self._sql), model, judgements)

    @override
    def increment_uses(self, skill_ids: Sequence[str]) -> None:
        with self._database.write() as db:
            ids = [(skill_id,) for skill_id in sorted(skill_ids)]
            db.executemany("UPDATE skills SET uses = uses + 1 WHERE skill_id = ?", ids)

    @override
    def prune_removed(self, age_seconds: float) -> list[str]:
        with self._database.write() as db:
            rows = db.execute(self._sql["prune"], (time.time() - age_seconds,)).fetchall()
        return [skill_id for (skill_id,) in rows]

    @override
    def overwrite_deleted(self) -> None:
        self._database.overwrite_deleted()

    @override
    def get_counts(self) -> dict[str, int]:
        with self._database.read() as db:
            states = dict(db.execute(self._sql["count_states"]).fetchall())
            rest = db.execute(self._sql["count_rest"]).fetchone()
        return complete_counts(states, *rest)

    # -- readers
    @override
    def get_epoch(self) -> int:
        return self.get_changes_since(_NO_LATER_EPOCH).epoch

    @override
    def get_changes_since(self, epoch: int) -> CatalogChanges:
        with self._database.read() as db:
            return read_changes(db, self._sql, epoch)

    # -- linking
    @override
    def mark_for_linking(self, skill_ids: Sequence[str]) -> None:
        with self._database.write() as db:
            asked = {"epoch": Transaction(db, self._sql).epoch, "ids": to_json_array(skill_ids)}
            db.execute(self._sql["mark_skills"], asked)

    @override
    def list_awaiting_linking(self, limit: int) -> list[tuple[str, int]]:
        with self._database.read() as db:
            return [(row[0], row[1]) for row in db.execute(self._sql["awaiting_linking"], (limit,))]

    @override
    def get_link_features(self, skill_ids: Sequence[str]) -> dict[str, LinkFeatures]:
        with self._database.read() as db:
            rows = db.execute(self._sql["link_features"], (to_json_array(skill_ids),)).fetchall()
        return {row[0]: features_from_row(row) for row in rows}

    @override
    def find_by_name(self, source_id: str, names: Sequence[str]) -> dict[str, list[str]]:
        keys = sorted({normalise_name(name) for name in names})
        asked = {"source_id": source_id, "names": to_json_array(keys)}
        found: defaultdict[str, list[str]] = defaultdict(list)
        with self._database.read() as db:
            for key, skill_id in db.execute(self._sql["find_by_name"], asked):
                found[key].append(skill_id)
        return dict(found)

    @override
    def get_owned_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        asked = to_json_array(skill_ids)
        with self._database.read() as db:
            owners = db.execute(self._sql["published"], (asked,)).fetchall()
            rows = db.execute(self._sql["owned"], (asked,)).fetchall()
        found: dict[str, list[Link]] = {skill_id: [] for (skill_id,) in owners}
        for row in rows:
            found.setdefault(row[0], []).append(link_from_row(row))
        return found

    @override
    def min_link_weight(
        self, kind: LinkType, count: int, skill_ids: Sequence[str]
    ) -> dict[str, float]:
        asked = {"type": kind.value, "count": count, "ids": to_json_array(skill_ids)}
        with self._database.read() as db:
            return dict(db.execute(self._sql["min_link_weight"], asked))

    @override
    def replace_links(
        self, links: Mapping[str, Sequence[Link]], marks: Sequence[tuple[str, int]]
    ) -> None:
        with self._database.write() as db:
            replace_links(Transaction(db, self._sql), links)
            db.executemany(
                "UPDATE skills SET mark_epoch = NULL WHERE skill_id = ? AND mark_epoch = ?", marks
            )

    @override
    def close(self) -> None:
        self._database.close()

    def _entries(
        self, selection: str, arguments: tuple[object, ...] | Mapping[str, object]
    ) -> list[CatalogEntry]:
        with self._database.read() as db:
            cursor = db.execute(f"SELECT {ENTRY_COLUMNS} {selection}", arguments)
            return [entry_from_row(row) for row in cursor]

    def _keys(self, statement: str, arguments: Mapping[str, object]) -> list[RevisionKey]:
        with self._database.read() as db:
            return [RevisionKey(*row) for row in db.execute(self._sql[statement], arguments)]

    def _read_number(self, key: str) -> int:
        with self._database.read() as db:
            (value,) = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return int(value)
