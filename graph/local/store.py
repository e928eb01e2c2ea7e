"""The catalog and the links in one SQLite file: the embedded `SkillGraph`."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from config.errors import UsageError
from graph.entry_filter import EntryFilter
from graph.local.database import Database
from graph.local.rows import (
    ENTRY_COLUMNS,
    LinkEnd,
    adjacency_from_ends,
    entry_from_row,
    features_from_row,
    link_from_row,
    source_from_row,
)
from graph.local.transactions import Transaction, publish, replace_links, withdraw
from graph.named_statements import load_statements
from graph.protocol import (
    Adjacency,
    CatalogChanges,
    CatalogEntry,
    Link,
    LinkFeatures,
    LinkType,
    Publication,
    SkillState,
    Source,
)
from graph.skill_names import normalise_name
from skills.record import RevisionKey, select_latest_revisions


class SqliteSkillGraph:
    """`graph.protocol.SkillGraph` on SQLite; safe to share among threads.

    One process may write; any number may read beside it with `writable=False`.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Open the library's file; errors as `Database` raises them."""
        self._sql = load_statements("graph.local", "queries.sql")
        self._database = Database(path, writable=writable)

    # -- sequence numbers and sources
    def allocate_sequence(self, count: int) -> range:
        """Take `count` numbers from the one counter that is never reset."""
        if count < 0:
            raise UsageError(f"cannot take {count} sequence numbers")
        with self._database.write() as db:
            (last,) = db.execute(self._sql["allocate_sequence"], (count,)).fetchone()
        return range(last - count + 1, last + 1)

    def save_source(self, source: Source) -> None:
        """Record a source; raises UsageError when its id is taken by another root."""
        with self._database.write() as db:
            taken = db.execute(
                "SELECT kind, root FROM sources WHERE source_id = ?", (source.source_id,)
            ).fetchone()
            if taken is not None and taken != (source.kind, source.root):
                raise UsageError(
                    f"source {source.source_id} is already {taken[0]} {taken[1]}: "
                    "choose another id, or drop that source first"
                )
            db.execute(
                self._sql["save_source"],
                asdict(source) | {"licences": json.dumps(source.licences)},
            )

    def list_sources(self) -> list[Source]:
        """All sources, by id."""
        with self._database.read() as db:
            rows = db.execute(self._sql["sources"]).fetchall()
        return [source_from_row(row) for row in rows]

    def delete_source(self, source_id: str) -> None:
        """Forget a source and its cursor; raises UsageError while it has published skills."""
        with self._database.write() as db:
            left = db.execute(
                "SELECT count(*) FROM skills WHERE source_id = ? AND seq > 0", (source_id,)
            ).fetchone()[0]
            if left:
                raise UsageError(f"source {source_id} still has {left} skills: remove them first")
            db.execute("DELETE FROM cursor WHERE source_id = ?", (source_id,))
            db.execute("DELETE FROM sources WHERE source_id = ?", (source_id,))

    def get_file_signatures(self, source_id: str) -> dict[str, str]:
        """Skill path -> signature of what has been seen of it."""
        with self._database.read() as db:
            return dict(
                db.execute("SELECT path, signature FROM cursor WHERE source_id = ?", (source_id,))
            )

    def update_file_signatures(
        self, source_id: str, seen: Mapping[str, str], gone: Iterable[str]
    ) -> None:
        """Record signatures of paths seen and forget those gone."""
        with self._database.write() as db:
            db.executemany(
                "DELETE FROM cursor WHERE source_id = ? AND path = ?",
                [(source_id, path) for path in gone],
            )
            db.executemany(
                "INSERT OR REPLACE INTO cursor VALUES (?, ?, ?)",
                [(source_id, path, signature) for path, signature in seen.items()],
            )

    # -- the catalog
    def request_ingest(self, skills: Sequence[tuple[str, str, str]], seq: int) -> None:
        """Mark (skill_id, source_id, path) as wanting ingest of what was seen at `seq`."""
        with self._database.write() as db:
            db.executemany(self._sql["add_skill"], skills)
            db.executemany(
                self._sql["request_ingest"],
                [{"skill_id": skill_id, "seq": seq} for skill_id, _, _ in skills],
            )

    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        """Entries by id (all when None), removed ones included, ordered by skill_id."""
        if skill_ids is None:
            return self._entries("all_entries", ())
        return self._entries("entries", (json.dumps(list(skill_ids)),))

    def get_entries_under(self, source_id: str, path: str) -> list[CatalogEntry]:
        """Entries of a source whose path is `path` or lies below it; "" is the whole source."""
        name = "entries_under" if path else "entries_of_source"
        return self._entries(name, {"source_id": source_id, "path": path})

    def list_entries(self, selection: EntryFilter, after: str, limit: int) -> list[CatalogEntry]:
        """The first `limit` entries of a selection whose skill_id sorts after `after`, by it."""
        first, end = selection.id_range(after)
        wanted: dict[str, object] = {"after": first, "end": end, "limit": limit}
        if selection.state is not None:
            wanted["state"] = selection.state.value
        if selection.name is not None:
            named = {"name_key": normalise_name(selection.name), "state": None}
            return self._entries("list_entries_by_name", named | wanted)
        return self._entries(
            "list_entries" if selection.state is None else "list_entries_in_state", wanted
        )

    def count_states_by_source(self, source_ids: Sequence[str]) -> dict[str, dict[SkillState, int]]:
        """By source, how many of its skills are in each state."""
        asked = {"source_ids": json.dumps(list(source_ids)), "states": json.dumps(list(SkillState))}
        counted: dict[str, dict[SkillState, int]] = {source_id: {} for source_id in source_ids}
        with self._database.read() as db:
            for source_id, state, many in db.execute(self._sql["count_states_by_source"], asked):
                counted[source_id][SkillState(state)] = many
        return counted

    def publish(self, publications: Sequence[Publication]) -> list[RevisionKey]:
        """Move pointers forward and mark the skills for linking, in one transaction.

        Returns the keys whose pointer moved; a seq that is not above the skill's pointer, its
        last confirmation, removal or failure is stale and changes nothing. Where a skill is given
        more than once, only its highest seq counts.
        """
        if not publications:
            return []
        newest = select_latest_revisions(publications)
        with self._database.write() as db:
            transaction = Transaction(db, self._sql)
            moved = [one.key for one in newest.values() if publish(transaction, one)]
            transaction.write_marks()
        return moved

    def mark_unchanged(
        self, keys: Sequence[RevisionKey], hashes: Sequence[str] | None = None
    ) -> None:
        """An ingest saw at `seq` what is published already: clear wanted marks up to it.

        hashes: the content each ingest saw; where the published content is another by now, the
        skill goes on waiting.
        """
        seen = [None] * len(keys) if hashes is None else list(hashes)
        with self._database.write() as db:
            db.executemany(
                self._sql["mark_unchanged"],
                [
                    {"skill_id": key.skill_id, "seq": key.seq, "content_hash": content_hash}
                    for key, content_hash in zip(keys, seen, strict=True)
                ],
            )

    def remove(self, keys: Sequence[RevisionKey]) -> list[str]:
        """Withdraw pointers older than the key's seq; returns the skills that were withdrawn."""
        if not keys:
            return []
        with self._database.write() as db:
            transaction = Transaction(db, self._sql)
            withdrawn = []
            for key in keys:
                source_id, _, path = key.skill_id.partition(":")
                if withdraw(transaction, key, source_id, path, SkillState.REMOVED, ""):
                    withdrawn.append(key.skill_id)
            transaction.write_marks()
        return withdrawn

    def record_failures(self, failures: Sequence[tuple[RevisionKey, str, str, str]]) -> None:
        """Record (key, source_id, path, reason); withdraws an older pointer."""
        if not failures:
            return
        with self._database.write() as db:
            transaction = Transaction(db, self._sql)
            for key, source_id, path, reason in failures:
                withdraw(transaction, key, source_id, path, SkillState.FAILED, reason)
            transaction.write_marks()

    def list_awaiting_ingest(self, limit: int) -> list[CatalogEntry]:
        """Entries whose wanted_seq has not been served, oldest first."""
        return self._entries("awaiting_ingest", (limit,))

    def list_awaiting_embedding(self, limit: int) -> list[RevisionKey]:
        """Published revisions without section vectors, most used first."""
        with self._database.read() as db:
            return [
                RevisionKey(*row) for row in db.execute(self._sql["awaiting_embedding"], (limit,))
            ]

    def mark_embedded(self, keys: Sequence[RevisionKey]) -> None:
        """Their sections have vectors; a key that is no longer published is ignored."""
        with self._database.write() as db:
            db.executemany(
                "UPDATE skills SET paged = 1 WHERE skill_id = ? AND seq = ? AND seq > 0", keys
            )

    def list_scanned_before(self, scanner_version: int, limit: int) -> list[RevisionKey]:
        """Published revisions whose marks are of an older scanner."""
        with self._database.read() as db:
            rows = db.execute(self._sql["scanned_before"], (scanner_version, limit))
            return [RevisionKey(*row) for row in rows]

    def update_safety_levels(self, levels: Mapping[RevisionKey, int], scanner_version: int) -> None:
        """What a newer scanner says of published revisions; others are ignored."""
        with self._database.write() as db:
            db.executemany(
                "UPDATE skills SET safety_level = ?, scanner = ?"
                " WHERE skill_id = ? AND seq = ? AND seq > 0 AND scanner < ?",
                [(level, scanner_version, *key, scanner_version) for key, level in levels.items()],
            )

    def increment_uses(self, skill_ids: Sequence[str]) -> None:
        """Bundles chose these skills once more; written by skill_id."""
        with self._database.write() as db:
            db.executemany(
                "UPDATE skills SET uses = uses + 1 WHERE skill_id = ?",
                [(skill_id,) for skill_id in sorted(skill_ids)],
            )

    def prune_removed(self, age_seconds: float) -> int:
        """Forget skills that were removed more than `age` seconds ago; how many."""
        with self._database.write() as db:
            return int(db.execute(self._sql["prune"], (time.time() - age_seconds,)).rowcount)

    def get_counts(self) -> dict[str, int]:
        """Skills by state, and `paged`, `unlinked`, `waiting`, `links`."""
        with self._database.read() as db:
            states = dict(db.execute(self._sql["count_states"]).fetchall())
            rest = db.execute(self._sql["count_rest"]).fetchone()
        counted = {state.value: states.get(state.value, 0) for state in SkillState}
        return counted | dict(zip(("paged", "unlinked", "waiting", "links"), rest, strict=True))

    # -- readers
    def get_changes_since(self, epoch: int) -> CatalogChanges:
        """What changed after `epoch`, told once; 0 gives every pointer."""
        now, pointers, rows = epoch, {}, set()
        with self._database.read() as db:
            for kind, skill_id, number in db.execute(self._sql["changes"], {"epoch": epoch}):
                if kind == 0:
                    now = number
                elif kind == 1:
                    pointers[skill_id] = number
                else:
                    rows.add(skill_id)
        return CatalogChanges(now, pointers, frozenset(rows))

    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """Rows of these skills, at most `fan_out` neighbours each; every id asked has one."""
        found: dict[str, list[LinkEnd]] = {skill_id: [] for skill_id in skill_ids}
        with self._database.read() as db:
            for row in db.execute(self._sql["adjacency"], (json.dumps(list(found)),)):
                found[row[0]].append(row[1:])
        return {skill_id: adjacency_from_ends(ends, fan_out) for skill_id, ends in found.items()}

    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """By skill, every link that starts or ends at it, or that it owns."""
        found: dict[str, list[tuple[Any, ...]]] = {skill_id: [] for skill_id in skill_ids}
        with self._database.read() as db:
            for asked, *values in db.execute(self._sql["links"], (json.dumps(list(found)),)):
                found[asked].append(tuple(values))
        return {
            skill_id: [link_from_row(row) for row in sorted(rows)]
            for skill_id, rows in found.items()
        }

    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        """Every link that starts and ends at one of these skills. One round trip."""
        with self._database.read() as db:
            asked = {"ids": json.dumps(list(skill_ids))}
            return [link_from_row(row) for row in db.execute(self._sql["links_among"], asked)]

    # -- linking
    def list_awaiting_linking(self, limit: int) -> list[tuple[str, int]]:
        """Skills marked for linking with the epoch of their mark, oldest first."""
        with self._database.read() as db:
            return [(row[0], row[1]) for row in db.execute(self._sql["awaiting_linking"], (limit,))]

    def get_link_features(self, skill_ids: Sequence[str]) -> dict[str, LinkFeatures]:
        """What linking needs of these published skills; others are left out."""
        with self._database.read() as db:
            rows = db.execute(self._sql["link_features"], (json.dumps(list(skill_ids)),)).fetchall()
        return {row[0]: features_from_row(row) for row in rows}

    def find_by_name(self, source_id: str, names: Sequence[str]) -> dict[str, list[str]]:
        """Published skills of a source by normalised name; names nobody has are left out."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        with self._database.read() as db:
            for key, skill_id in db.execute(self._sql["find_by_name"], _names(source_id, names)):
                found[key].append(skill_id)
        return dict(found)

    def find_mentioning(self, source_id: str, names: Sequence[str]) -> list[str]:
        """Published skills of a source that mention any of these normalised names."""
        with self._database.read() as db:
            rows = db.execute(self._sql["find_mentioning"], _names(source_id, names))
            return [row[0] for row in rows]

    def get_owned_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """The links that these published skills own; others are left out."""
        asked = json.dumps(list(skill_ids))
        with self._database.read() as db:
            owners = db.execute(self._sql["published"], (asked,)).fetchall()
            rows = db.execute(self._sql["owned"], (asked,)).fetchall()
        found: dict[str, list[Link]] = {skill_id: [] for (skill_id,) in owners}
        for row in rows:
            found.setdefault(row[0], []).append(link_from_row(row))
        return found

    def min_link_weight(
        self, kind: LinkType, count: int, skill_ids: Sequence[str]
    ) -> dict[str, float]:
        """The weight of the lightest link of a type that each of these skills owns, of those that
        own at least `count`."""
        asked = {"type": kind.value, "count": count, "ids": json.dumps(list(skill_ids))}
        with self._database.read() as db:
            return dict(db.execute(self._sql["min_link_weight"], asked))

    def replace_links(
        self, links: Mapping[str, Sequence[Link]], marks: Sequence[tuple[str, int]]
    ) -> None:
        """Replace all links each owner has, and clear the marks that have not moved since.

        An owner that is no longer published gets none. A link whose other end was withdrawn in
        the meantime is left out, and its owner marked again. Of several with one (owner, source,
        target, type) the heaviest is kept, of those the one whose evidence sorts first.
        """
        with self._database.write() as db:
            replace_links(Transaction(db, self._sql), links)
            db.executemany(
                "UPDATE skills SET mark_epoch = NULL WHERE skill_id = ? AND mark_epoch = ?", marks
            )

    def close(self) -> None:
        """Release the connections."""
        self._database.close()

    def _entries(
        self, statement: str, arguments: tuple[object, ...] | Mapping[str, object]
    ) -> list[CatalogEntry]:
        with self._database.read() as db:
            cursor = db.execute(f"SELECT {ENTRY_COLUMNS} {self._sql[statement]}", arguments)
            return [entry_from_row(row) for row in cursor]


def _names(source_id: str, names: Sequence[str]) -> dict[str, str]:
    keys = sorted({normalise_name(name) for name in names})
    return {"source_id": source_id, "names": json.dumps(keys)}
