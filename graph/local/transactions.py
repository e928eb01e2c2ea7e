"""Transactions of the embedded store: publishing and withdrawing skills, changing links."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from graph.local.rows import to_json_array
from graph.records import (
    Link,
    LinkKey,
    LinkType,
    Publication,
    RevisionScan,
    Withdrawal,
    merge_duplicate_links,
)
from graph.row_codec import pack_mentions, pack_vector, published_values
from graph.skill_names import lookup_keys, normalise_name
from skills.judgement import Judgement, replace_judgement
from skills.record import RevisionKey, get_source_id

Arguments = Sequence[object] | Mapping[str, object]
"""Values of the parameters of a statement."""

_Edge = tuple[int, int, str, float, str]


class Transaction:
    """A write transaction: its connection, its epoch, and queued marks for linking."""

    def __init__(self, db: sqlite3.Connection, statements: Mapping[str, str]) -> None:
        self._db = db
        self._statements = statements
        self._relinked: set[int] = set()
        self._names: set[tuple[str, str]] = set()
        self._keys: set[str] = set()

    @cached_property
    def epoch(self) -> int:
        """Number of this transaction in the change feed; allocated on first access."""
        (epoch,) = self.run("next_epoch").fetchone()
        return int(epoch)

    def run(self, name: str, arguments: Arguments = ()) -> sqlite3.Cursor:
        """Run a statement by name."""
        return self._db.execute(self._statements[name], arguments)

    def run_each(self, name: str, rows: Iterable[Arguments]) -> None:
        """Run a statement for each row."""
        self._db.executemany(self._statements[name], rows)

    def get_or_add_skill(self, skill_id: str, source_id: str, path: str) -> tuple[int, int, int]:
        """Return a skill's row id, pointer and served_seq; a missing row is inserted."""
        row = self.run("skill_seqs", (skill_id,)).fetchone()
        if row is None:
            self.run("add_skill", (skill_id, source_id, path))
            row = self.run("skill_seqs", (skill_id,)).fetchone()
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
            self.run("mark_owners", {"epoch": self.epoch, "ids": ids})
        if self._keys:
            asked = {
                "epoch": self.epoch,
                "names": json.dumps(sorted(self._names)),
                "keys": json.dumps(sorted(self._keys)),
            }
            self.run("mark_mentioning", asked)
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
        if transaction.run("is_unchanged", asked).fetchone() is None:
            return False
    key = normalise_name(publication.name)
    old = _name_key(transaction, row) if pointer else None
    if old != key:
        names = {key} if old is None else {key, old}
        transaction.queue_name_change(skill_id, publication.source_id, names)
    _write_pointer(transaction, publication, row, key)
    _write_mentions(transaction, row, publication)
    _write_rules(transaction, skill_id, publication.rules)
    vectors = (pack_vector(publication.body_terms), pack_vector(publication.description_terms))
    transaction.run("put_facts", (row, *vectors, pack_mentions(publication.mentions)))
    return True


def withdraw(transaction: Transaction, given: Withdrawal) -> bool:
    """Withdraw the pointer of a skill with its facts and links; True if it was published.

    The seq is recorded in any case, so that events older than this removal or failure are stale.
    """
    skill_id, seq = given.key
    row, pointer, served = transaction.get_or_add_skill(skill_id, given.source_id, given.path)
    if seq <= served:
        return False
    if pointer:
        transaction.queue_name_change(skill_id, given.source_id, {_name_key(transaction, row)})
        transaction.queue_links_lost(row)
        transaction.write_marks()
        transaction.run("touch_linked_rows", {"epoch": transaction.epoch, "id": row})
        transaction.run("delete_links_of", {"id": row})
        transaction.run("delete_facts", (row,))
        transaction.run("delete_mentions", (row,))
        _write_rules(transaction, skill_id, ())
    changed = {
        "id": row,
        "seq": seq,
        "state": given.state.value,
        "reason": given.reason,
        "updated": time.time(),
        "epoch": transaction.epoch if pointer else 0,
    }
    transaction.run("withdraw", changed)
    return bool(pointer)


def replace_links(transaction: Transaction, links: Mapping[str, Sequence[Link]]) -> None:
    """Replace the links of each owner by these; unchanged rows are not written."""
    named = {skill_id for owned in links.values() for link in owned for skill_id in link.ends}
    rows = _find_rows(transaction, sorted(named | links.keys()))
    dismissed = {
        LinkKey(source, target, LinkType(kind))
        for source, target, kind, *_ in transaction.run("dismissed_links")
    }
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
            _mark_rows(transaction, {rows[owner]})
        touched |= _replace_owned(transaction, rows[owner], wanted)
    _touch_rows(transaction, touched)


def dismiss_link(transaction: Transaction, key: LinkKey, reason: str, dismissed: float) -> None:
    """Record a dismissal, delete the link, and mark its owners and ends for linking."""
    kind = key.type.value
    transaction.run("dismiss_link", (*key[:2], kind, reason, dismissed))
    ends = _find_rows(transaction, key[:2])
    asked = {"type": kind, "ids": json.dumps(sorted(ends.values()))}
    links = [
        (owner, source, target)
        for owner, source, target in transaction.run("links_of_type_among", asked)
        if not key.type.is_directed or source == ends.get(key.source)
    ]
    transaction.run_each("delete_link", [(*link, kind) for link in links])
    _touch_rows(transaction, {end for _, *both in links for end in both})
    _mark_rows(transaction, {*ends.values(), *(owner for owner, *_ in links)})


def restore_link(transaction: Transaction, key: LinkKey) -> bool:
    """Delete a dismissal and mark the skills that may own the link; False without a dismissal."""
    if not transaction.run("restore_link", (*key[:2], key.type.value)).rowcount:
        return False
    ends = _find_rows(transaction, key[:2])
    for skill_id, row in ends.items():
        source_id = get_source_id(skill_id)
        transaction.queue_name_change(skill_id, source_id, {_name_key(transaction, row)})
    transaction.write_marks()
    _mark_rows(transaction, set(ends.values()))
    return True


def save_judgements(
    transaction: Transaction,
    model: str,
    judgements: Mapping[str, tuple[str, Judgement | None]],
) -> None:
    """Store a model's judgements of skills whose content is still the judged content."""
    changed = set()
    for skill_id, (content_hash, judgement) in judgements.items():
        for row, stored in transaction.run("judgements", (skill_id, content_hash)).fetchall():
            wanted = replace_judgement(stored, model, judgement)
            if wanted != stored:
                transaction.run("set_judgements", (wanted, row))
                changed.add(row)
    _touch_rows(transaction, changed)


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
    if transaction.run("save_scan", changed).rowcount:
        _write_rules(transaction, key.skill_id, scan.rules)


def _replace_owned(transaction: Transaction, owner: int, wanted: set[_Edge]) -> set[int]:
    """Write the difference of one owner's links; return the rows whose links changed."""
    known: set[_Edge] = set(transaction.run("links_of_owner", (owner,)))
    gone, new = sorted(known - wanted), sorted(wanted - known)
    transaction.run_each("delete_link", [(owner, *edge[:3]) for edge in gone])
    transaction.run_each("add_link", [(owner, *edge) for edge in new])
    return {end for edge in known ^ wanted for end in edge[:2]}


def _find_rows(transaction: Transaction, skill_ids: Sequence[str]) -> dict[str, int]:
    """Return the row of each skill that is published."""
    return dict(transaction.run("published_rows", (to_json_array(skill_ids),)).fetchall())


def _touch_rows(transaction: Transaction, rows: set[int]) -> None:
    """Record in the change feed that the links or judgements of these rows changed."""
    if rows:
        transaction.run("touch_rows", (transaction.epoch, json.dumps(sorted(rows))))


def _mark_rows(transaction: Transaction, rows: set[int]) -> None:
    """Mark these rows for linking."""
    transaction.run("mark_rows", (transaction.epoch, json.dumps(sorted(rows))))


def _name_key(transaction: Transaction, row: int) -> str:
    """Return a published skill's normalised name."""
    (key,) = transaction.run("name_key", (row,)).fetchone()
    return str(key)


def _write_pointer(
    transaction: Transaction, publication: Publication, row: int, name_key: str
) -> None:
    changed = {
        "id": row,
        "name_key": name_key,
        "seq": publication.key.seq,
        "vectors": publication.has_vectors,
        "epoch": transaction.epoch,
    }
    transaction.run("publish", published_values(publication) | changed)


def _write_mentions(transaction: Transaction, row: int, publication: Publication) -> None:
    keys = {key for mention in publication.mentions for key in lookup_keys(mention.name)}
    transaction.run("delete_mentions", (row,))
    transaction.run_each("add_mention", [(key, publication.source_id, row) for key in sorted(keys)])


def _write_rules(transaction: Transaction, skill_id: str, rules: Sequence[str]) -> None:
    transaction.run("delete_rules", (skill_id,))
    transaction.run_each("add_rule", [(rule, skill_id) for rule in rules])
