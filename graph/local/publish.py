"""Writes of the embedded store: publishing and withdrawing skills, replacing links, marks.

Everything here runs inside a write transaction of the caller.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from functools import cached_property

from graph.feature_codec import pack_mentions, pack_vector
from graph.local.rows import to_json_array
from graph.records import (
    Link,
    LinkKey,
    LinkType,
    Publication,
    RevisionScan,
    SkillState,
    merge_duplicate_links,
)
from graph.skill_names import lookup_keys, normalise_name
from skills.judgement import Judgement, replace_judgement
from skills.record import RevisionKey

_Edge = tuple[int, int, str, float, str]


class Transaction:
    """A write transaction: its connection, its epoch, and queued marks for linking."""

    def __init__(self, db: sqlite3.Connection, sql: Mapping[str, str]) -> None:
        self.db = db
        self.sql = sql
        self._relinked: set[int] = set()
        self._names: set[tuple[str, str]] = set()
        self._keys: set[str] = set()

    @cached_property
    def epoch(self) -> int:
        """Number of this transaction in the change feed; allocated on first access."""
        (epoch,) = self.db.execute(self.sql["next_epoch"]).fetchone()
        return int(epoch)

    def get_or_add_skill(self, skill_id: str, source_id: str, path: str) -> tuple[int, int, int]:
        """Return a skill's row id, pointer and served_seq; a missing row is inserted."""
        asked = "SELECT id, seq, served_seq FROM skills WHERE skill_id = ?"
        row = self.db.execute(asked, (skill_id,)).fetchone()
        if row is None:
            self.db.execute(self.sql["add_skill"], (skill_id, source_id, path))
            row = self.db.execute(asked, (skill_id,)).fetchone()
        return (row[0], row[1], row[2])

    def queue_name_change(self, skill_id: str, source_id: str, keys: set[str]) -> None:
        """Queue marks of skills that mention these names or this skill_id; they resolve again."""
        self._names.update((key, source_id) for key in keys)
        self._keys.add(normalise_name(skill_id))

    def queue_links_lost(self, row: int) -> None:
        """Queue marks of skills that own links with this skill, since their lists get room."""
        self._relinked.add(row)

    def write_marks(self) -> None:
        """Write all queued marks; must be called before links are deleted, and at the end."""
        if self._relinked:
            ids = json.dumps(sorted(self._relinked))
            self.db.execute(self.sql["mark_owners"], {"epoch": self.epoch, "ids": ids})
        if self._keys:
            asked = {
                "epoch": self.epoch,
                "names": json.dumps(sorted(self._names)),
                "keys": json.dumps(sorted(self._keys)),
            }
            self.db.execute(self.sql["mark_mentioning"], asked)
        self._relinked.clear()
        self._names.clear()
        self._keys.clear()


def publish(transaction: Transaction, publication: Publication) -> bool:
    """Publish a revision by moving the pointer of its skill; False if it is stale."""
    skill_id, seq = publication.key
    row, pointer, served = transaction.get_or_add_skill(
        skill_id, publication.source_id, publication.path
    )
    if seq <= served:
        return False
    if publication.replaces:
        asked = (row, publication.replaces)
        if transaction.db.execute(transaction.sql["is_unchanged"], asked).fetchone() is None:
            return False
    key = normalise_name(publication.name)
    old = _name_key(transaction.db, row) if pointer else None
    if old != key:
        names = {key} if old is None else {key, old}
        transaction.queue_name_change(skill_id, publication.source_id, names)
    _write_pointer(transaction, publication, row, key)
    _write_mentions(transaction.db, row, publication)
    _write_rules(transaction.db, skill_id, publication.rules)
    transaction.db.execute(
        transaction.sql["put_facts"],
        (
            row,
            pack_vector(publication.body_terms),
            pack_vector(publication.description_terms),
            pack_mentions(publication.mentions),
        ),
    )
    return True


def withdraw(
    transaction: Transaction,
    key: RevisionKey,
    source_id: str,
    path: str,
    state: SkillState,
    reason: str,
) -> bool:
    """Withdraw the pointer of a skill with its facts and links; True if it was published.

    The seq is recorded in any case, so that events older than this removal or failure are stale.
    """
    row, pointer, served = transaction.get_or_add_skill(key.skill_id, source_id, path)
    if key.seq <= served:
        return False
    db, sql = transaction.db, transaction.sql
    if pointer:
        transaction.queue_name_change(key.skill_id, source_id, {_name_key(db, row)})
        transaction.queue_links_lost(row)
        transaction.write_marks()
        db.execute(sql["touch_linked_rows"], {"epoch": transaction.epoch, "id": row})
        for end in ("owner", "source", "target"):
            db.execute(f"DELETE FROM links WHERE {end} = ?", (row,))  # noqa: S608 - fixed names
        db.execute("DELETE FROM facts WHERE skill = ?", (row,))
        db.execute("DELETE FROM mentions WHERE skill = ?", (row,))
        _write_rules(db, key.skill_id, ())
    changed = {
        "id": row,
        "seq": key.seq,
        "state": state.value,
        "reason": reason,
        "updated": time.time(),
        "epoch": transaction.epoch if pointer else 0,
    }
    db.execute(sql["withdraw"], changed)
    return bool(pointer)


def replace_links(transaction: Transaction, links: Mapping[str, Sequence[Link]]) -> None:
    """Replace the links of each owner by these; unchanged rows are not written."""
    named = {skill_id for owned in links.values() for link in owned for skill_id in link.ends}
    rows = dict(_find_rows(transaction.db, sorted(named | links.keys())))
    dismissed = _read_dismissed_keys(transaction.db)
    touched: set[int] = set()
    for owner in sorted(links):
        if owner not in rows:
            continue
        allowed = [link for link in links[owner] if link.key not in dismissed]
        wanted = {
            (rows[link.source], rows[link.target], link.type.value, link.weight, link.evidence)
            for link in merge_duplicate_links(allowed)
            if link.source in rows and link.target in rows
        }
        if any(end not in rows for link in allowed for end in link.ends):
            _set_epoch(transaction, "mark_epoch", {rows[owner]})
        touched |= _replace_owned(transaction.db, rows[owner], wanted)
    if touched:
        _set_epoch(transaction, "row_epoch", touched)


def dismiss_link(transaction: Transaction, key: LinkKey, reason: str, dismissed: float) -> None:
    """Record a dismissal, delete the link, and mark its owners and ends for linking."""
    db = transaction.db
    db.execute(
        "INSERT OR REPLACE INTO dismissed_links VALUES (?, ?, ?, ?, ?)",
        (*key[:2], key.type.value, reason, dismissed),
    )
    ends = dict(_find_rows(db, key[:2]))
    links = [
        (owner, source, target)
        for owner, source, target in _find_links(db, sorted(ends.values()), key.type)
        if not key.type.is_directed or source == ends.get(key.source)
    ]
    db.executemany(
        "DELETE FROM links WHERE owner = ? AND source = ? AND target = ? AND type = ?",
        [(*link, key.type.value) for link in links],
    )
    _set_epoch(transaction, "row_epoch", {end for _, *both in links for end in both})
    _set_epoch(transaction, "mark_epoch", {*ends.values(), *(owner for owner, *_ in links)})


def restore_link(transaction: Transaction, key: LinkKey) -> bool:
    """Delete a dismissal and mark the skills that may own the link; False without a dismissal."""
    found = transaction.db.execute(
        "DELETE FROM dismissed_links WHERE source = ? AND target = ? AND type = ?",
        (*key[:2], key.type.value),
    ).rowcount
    if not found:
        return False
    ends = _find_rows(transaction.db, key[:2])
    for skill_id, row in ends:
        source_id = skill_id.partition(":")[0]
        transaction.queue_name_change(skill_id, source_id, {_name_key(transaction.db, row)})
    transaction.write_marks()
    _set_epoch(transaction, "mark_epoch", {row for _, row in ends})
    return True


def save_judgements(
    transaction: Transaction,
    model: str,
    judgements: Mapping[str, tuple[str, Judgement | None]],
) -> None:
    """Store a model's judgements of skills whose content is still the judged content."""
    db, changed = transaction.db, set()
    for skill_id, (content_hash, judgement) in judgements.items():
        for row, stored in db.execute(
            transaction.sql["judgements"], (skill_id, content_hash)
        ).fetchall():
            wanted = replace_judgement(stored, model, judgement)
            if wanted != stored:
                db.execute("UPDATE skills SET judgements = ? WHERE id = ?", (wanted, row))
                changed.add(row)
    if changed:
        _set_epoch(transaction, "row_epoch", changed)


def save_scan(
    transaction: Transaction, key: RevisionKey, scan: RevisionScan, scanner_version: int
) -> None:
    """Save a scan, unless the revision is superseded or its stored scan is as recent."""
    changed = {
        **key._asdict(),
        "safety_level": scan.safety_level,
        "has_scripts": scan.has_scripts,
        "scanner": scanner_version,
    }
    if transaction.db.execute(transaction.sql["save_scan"], changed).rowcount:
        _write_rules(transaction.db, key.skill_id, scan.rules)


def _replace_owned(db: sqlite3.Connection, owner: int, wanted: set[_Edge]) -> set[int]:
    """Write the difference of one owner's links; return the rows whose links changed."""
    known: set[_Edge] = set(
        db.execute(
            "SELECT source, target, type, weight, evidence FROM links WHERE owner = ?", (owner,)
        ).fetchall()
    )
    db.executemany(
        "DELETE FROM links WHERE owner = ? AND source = ? AND target = ? AND type = ?",
        [(owner, *edge[:3]) for edge in sorted(known - wanted)],
    )
    db.executemany(
        "INSERT INTO links (owner, source, target, type, weight, evidence)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [(owner, *edge) for edge in sorted(wanted - known)],
    )
    return {end for edge in known ^ wanted for end in edge[:2]}


def _read_dismissed_keys(db: sqlite3.Connection) -> set[LinkKey]:
    rows = db.execute("SELECT source, target, type FROM dismissed_links").fetchall()
    return {LinkKey(source, target, LinkType(kind)) for source, target, kind in rows}


def _find_rows(db: sqlite3.Connection, skill_ids: Sequence[str]) -> list[tuple[str, int]]:
    """Return (skill_id, row) of those skills that are published."""
    return db.execute(
        "SELECT skill_id, id FROM skills WHERE seq > 0"
        " AND skill_id IN (SELECT value FROM json_each(?))",
        (to_json_array(skill_ids),),
    ).fetchall()


def _find_links(
    db: sqlite3.Connection, rows: Sequence[int], kind: LinkType
) -> list[tuple[int, int, int]]:
    """Return (owner, source, target) of the links of a type among these skills."""
    asked = json.dumps(list(rows))
    return db.execute(
        "SELECT owner, source, target FROM links WHERE type = ?"
        " AND source IN (SELECT value FROM json_each(?))"
        " AND target IN (SELECT value FROM json_each(?))",
        (kind.value, asked, asked),
    ).fetchall()


def _set_epoch(transaction: Transaction, column: str, rows: set[int]) -> None:
    transaction.db.execute(
        f"UPDATE skills SET {column} = ? WHERE id IN (SELECT value FROM json_each(?))",  # noqa: S608 - fixed names
        (transaction.epoch, json.dumps(sorted(rows))),
    )


def _name_key(db: sqlite3.Connection, row: int) -> str:
    """Return a published skill's normalised name."""
    (key,) = db.execute("SELECT name_key FROM skills WHERE id = ?", (row,)).fetchone()
    return str(key)


def _write_pointer(
    transaction: Transaction, publication: Publication, row: int, name_key: str
) -> None:
    changed = {
        "id": row,
        "name": publication.name,
        "name_key": name_key,
        "description": publication.description,
        "seq": publication.key.seq,
        "content_hash": publication.content_hash,
        "warnings": publication.warnings,
        "safety_level": publication.safety_level,
        "scanner": publication.scanner_version,
        "parser": publication.parser_version,
        "tokens": publication.tokens,
        "language": publication.language,
        "licence": publication.licence,
        "has_scripts": publication.has_scripts,
        "vectors": publication.has_vectors,
        "updated": time.time(),
        "epoch": transaction.epoch,
    }
    transaction.db.execute(transaction.sql["publish"], changed)


def _write_mentions(db: sqlite3.Connection, row: int, publication: Publication) -> None:
    keys = {key for mention in publication.mentions for key in lookup_keys(mention.name)}
    db.execute("DELETE FROM mentions WHERE skill = ?", (row,))
    db.executemany(
        "INSERT INTO mentions (key, source_id, skill) VALUES (?, ?, ?)",
        [(key, publication.source_id, row) for key in sorted(keys)],
    )


def _write_rules(db: sqlite3.Connection, skill_id: str, rules: Sequence[str]) -> None:
    db.execute("DELETE FROM finding_rules WHERE skill_id = ?", (skill_id,))
    db.executemany(
        "INSERT INTO finding_rules (rule, skill_id) VALUES (?, ?)",
        [(rule, skill_id) for rule in rules],
    )
