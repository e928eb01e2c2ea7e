"""Transactions of the Neo4j catalog: moving and withdrawing pointers, replacing links.

Each locks every skill that it will touch first, by skill_id, then compares, writes, and takes the
epoch last: nobody waits for another in a circle, and the counter is held shortly. Whom that
touches is looked up before; where the locks show that it has become others, the transaction is
given up (`UnforeseenError`), to be begun anew with all of them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from graph.neo4j.client import Rows
from graph.packing import pack_mentions, pack_vector
from graph.protocol import Link, LinkType, Publication, SkillState
from graph.skill_names import lookup_keys, normalise_name
from skills.record import RevisionKey

Named = Callable[..., Rows]
"""Runs a statement by its name, with keyword parameters, in the transaction."""

_Edge = tuple[str, str, str, float, str]
_LONGEST_KEY = 1_000


class MissingLocksError(Exception):
    """The transaction touches skills that it has not locked in order; nothing was written."""

    def __init__(self, skill_ids: Set[str]) -> None:
        super().__init__(f"{len(skill_ids)} skills were not locked")
        self.skill_ids = skill_ids


class Withdrawal(NamedTuple):
    """A pointer to take away, and the state that the skill has then."""

    key: RevisionKey
    source_id: str
    path: str
    state: SkillState
    reason: str


class _LockedSkill(NamedTuple):
    """A locked skill: its pointer, highest served seq, and normalised name, "" without one."""

    seq: int
    served: int
    name: str


def publish(
    run: Named, retried: bool, extra_locks: Set[str], given: Sequence[Publication]
) -> list[RevisionKey]:
    """Move these pointers, one a skill and by skill_id; returns those that moved.

    again: an earlier attempt may have been committed: what stands there already counts as moved.
    also: skills to be locked beside those that are foreseen. Raises UnforeseenError.
    """
    ids = [one.key.skill_id for one in given]
    before: dict[str, str] = dict(run("name_keys", ids=ids))
    locked_skills = _lock(
        run,
        [(one.key.skill_id, one.source_id, one.path) for one in given],
        _mentioning(run, _renamed(given, before)) | extra_locks,
    )
    moved = [one for one in given if one.key.seq > locked_skills[one.key.skill_id].served]
    if moved:
        changed = _renamed(moved, {skill_id: one.name for skill_id, one in locked_skills.items()})
        marked = _mentioning(run, changed)
        _require_locked(marked, locked_skills)
        _write_facts(run, moved)
        epoch = run("next_epoch")[0][0]
        run("publish", rows=[_shown(one) for one in moved], epoch=epoch)
        if marked:
            run("mark_for_linking", ids=sorted(marked), epoch=epoch)
    keys = [one.key for one in moved]
    if retried:
        keys += [one.key for one in given if one.key.seq == locked_skills[one.key.skill_id].seq]
    return keys


def withdraw(
    run: Named, retried: bool, extra_locks: Set[str], given: Sequence[Withdrawal]
) -> tuple[list[str], set[str]]:
    """Take these pointers away, with facts and links; one a skill and by skill_id.

    The seq is kept either way, so that whatever is older than this is stale. Returns the skills
    that were withdrawn, and those whose rows changed with them. again, also: as for
    `publish`.
    """
    ids = [one.key.skill_id for one in given]
    before: dict[str, str] = dict(run("name_keys", ids=ids))
    others = _mentioning(run, _gone(before)) if before else set()
    others |= {other for (other,) in run("linked_skills", ids=sorted(before))} if before else set()
    own = [(one.key.skill_id, one.source_id, one.path) for one in given]
    locked_skills = _lock(run, own, others | extra_locks)
    going = [one for one in given if one.key.seq > locked_skills[one.key.skill_id].served]
    pointed = [one.key.skill_id for one in going if locked_skills[one.key.skill_id].seq]
    touched: set[str] = set()
    if pointed:
        marked = _mentioning(run, _gone({one: locked_skills[one].name for one in pointed}))
        marked |= {owner for (owner,) in run("link_owners", ids=pointed)}
        _require_locked(
            marked.union(other for (other,) in run("linked_skills", ids=pointed)), locked_skills
        )
        touched = {end for ends in run("delete_links_of", ids=pointed) for end in ends}
        run("drop_facts", ids=pointed)
        run("drop_mentions", ids=pointed)
        epoch = run("next_epoch")[0][0]
        run("mark_for_linking", ids=sorted(marked), epoch=epoch)
        run("set_row_epochs", ids=sorted(touched), epoch=epoch)
    if going:
        rows = [_withdrawn(one) for one in going]
        run("withdraw", rows=rows, blank=_BLANK, epoch=epoch if pointed else 0)
    if retried:
        pointed += [
            one.key.skill_id
            for one in given
            if one.key.seq == locked_skills[one.key.skill_id].served
        ]
    return pointed, touched


def replace_links(
    run: Named, retried: bool, extra_locks: Set[str], links: Mapping[str, Sequence[Link]]
) -> set[str]:
    """Make each owner's links exactly these; returns the skills whose rows may have changed.

    again: an earlier attempt may have been committed, and nothing is left to change. also: as for
    `publish`.
    """
    named = {end for owned in links.values() for link in owned for end in link_ends(link)}
    locked_skills = dict(run("lock", ids=sorted(named | links.keys() | extra_locks)))
    published = {skill_id for skill_id, seq in locked_skills.items() if seq}
    owners = sorted(published & links.keys())
    known = {owner: set[_Edge]() for owner in owners}
    known |= {owner: set(map(_edge, owned)) for owner, owned in run("owned", ids=owners)}
    gone: list[tuple[str, _Edge]] = []
    new: list[tuple[str, _Edge]] = []
    short = []
    for owner in owners:
        kept = [link for link in links[owner] if published.issuperset(link_ends(link))]
        if len(kept) < len(links[owner]):
            short.append(owner)
        wanted = _one_each(kept)
        gone += [(owner, edge) for edge in known[owner] - wanted]
        new += [(owner, edge) for edge in wanted - known[owner]]
    _require_locked({end for _, edge in gone for end in edge[:2]}, locked_skills)
    if gone:
        run("delete_links", rows=[_written(owner, edge) for owner, edge in sorted(gone)])
    if new:
        run("add_links", rows=[_written(owner, edge) for owner, edge in sorted(new)])
    touched = {end for _, edge in (*gone, *new) for end in edge[:2]}
    if touched or short:
        epoch = run("next_epoch")[0][0]
        run("mark_for_linking", ids=short, epoch=epoch)
        run("set_row_epochs", ids=sorted(touched), epoch=epoch)
    return touched.union(locked_skills) if retried else touched


def index_key(name: str) -> str:
    """A normalised name as it is indexed: Neo4j refuses keys of more than 8 kB."""
    encoded = name.encode()
    if len(encoded) <= _LONGEST_KEY:
        return name
    return f"{name[:100]}#{hashlib.sha256(encoded).hexdigest()}"


def link_ends(link: Link) -> tuple[str, str]:
    """The two skills that a link joins."""
    return (link.source, link.target)


def _lock(
    run: Named, own: Iterable[tuple[str, str, str]], others: Iterable[str]
) -> dict[str, _LockedSkill]:
    """Lock skills, making those that are missing; `others` are there already."""
    rows = {skill_id: (skill_id, *_parts(skill_id)) for skill_id in others}
    rows |= {row[0]: row for row in own}
    found = run("lock_or_add", rows=[list(rows[skill_id]) for skill_id in sorted(rows)])
    return {row[0]: _LockedSkill(row[1], row[2], row[3] or "") for row in found}


def _require_locked(skill_ids: Set[str], locked: Mapping[str, object]) -> None:
    late = skill_ids - locked.keys()
    if late:
        raise MissingLocksError(late)


def _parts(skill_id: str) -> tuple[str, str]:
    source_id, _, path = skill_id.partition(":")
    return source_id, path


class _Names(NamedTuple):
    """Names that come or go, each with the source it counts in, and skill_ids as names."""

    names: list[list[str]]
    keys: list[str]


def _renamed(given: Iterable[Publication], before: Mapping[str, str]) -> _Names:
    """Names that these publications bring or take away."""
    names: set[tuple[str, str]] = set()
    keys = set()
    for one in given:
        key, old = _name_key(one), before.get(one.key.skill_id, "")
        if key != old:
            names.update((name, one.source_id) for name in (key, old) if name)
            keys.add(index_key(normalise_name(one.key.skill_id)))
    return _Names([list(name) for name in sorted(names)], sorted(keys))


def _gone(before: Mapping[str, str]) -> _Names:
    names = {(name, _parts(skill_id)[0]) for skill_id, name in before.items() if name}
    keys = {index_key(normalise_name(skill_id)) for skill_id in before}
    return _Names([list(name) for name in sorted(names)], sorted(keys))


def _mentioning(run: Named, names: _Names) -> set[str]:
    """Who mentions any of these names."""
    if not names.keys:
        return set()
    found = run("find_mentioning_any", names=names.names, keys=names.keys)
    return {skill_id for (skill_id,) in found}


def _name_key(one: Publication) -> str:
    return index_key(normalise_name(one.name))


def _shown(one: Publication) -> dict[str, Any]:
    shown = {
        "source_id": one.source_id,
        "path": one.path,
        "name": one.name,
        "name_key": _name_key(one) or None,
        "description": one.description or None,
        "content_hash": one.content_hash,
        "reason": None,
        "warnings": one.warnings or None,
        "safety_level": one.safety_level or None,
        "scanner": one.scanner_version or None,
        "tokens": one.tokens or None,
        "language": one.language or None,
        "licence": one.licence or None,
        "updated": time.time(),
    }
    return {"skill_id": one.key.skill_id, "seq": one.key.seq, "shown": shown}


_BLANK = dict.fromkeys(
    (
        "name", "name_key", "description", "content_hash", "warnings", "safety_level", "scanner",
        "tokens", "language", "licence", "paged", "unpaged", "mark_epoch",
    )
)  # fmt: skip
"""What a skill without a pointer has not."""


def _withdrawn(one: Withdrawal) -> dict[str, Any]:
    return {
        "skill_id": one.key.skill_id,
        "seq": one.key.seq,
        "state": one.state.value,
        "reason": one.reason or None,
        "updated": time.time(),
    }


def _write_facts(run: Named, moved: Sequence[Publication]) -> None:
    facts = [
        {
            "skill_id": one.key.skill_id,
            "facts": {
                "signature": pack_vector(one.body_terms),
                "description_terms": pack_vector(one.description_terms),
                "mentions": pack_mentions(one.mentions),
            },
        }
        for one in moved
    ]
    run("put_facts", rows=facts)
    run("drop_mentions", ids=[one.key.skill_id for one in moved])
    mentioned = sorted(
        {
            (index_key(key), one.source_id, one.key.skill_id)
            for one in moved
            for mention in one.mentions
            for key in lookup_keys(mention.name)
        }
    )
    if mentioned:
        run("put_mentions", rows=[list(row) for row in mentioned])


def _one_each(links: Sequence[Link]) -> set[_Edge]:
    """One link for each (source, target, type): the heaviest, then by evidence."""
    ordered = sorted(links, key=lambda link: (-link.weight, link.evidence), reverse=True)
    kept = {(link.source, link.target, link.type): link for link in ordered}
    return {
        (link.source, link.target, link.type.name, float(link.weight), link.evidence)
        for link in kept.values()
    }


def _edge(values: Sequence[Any]) -> _Edge:
    source, target, kind, weight, evidence = values
    return (source, target, LinkType[kind].name, weight, evidence)


def _written(owner: str, edge: _Edge) -> dict[str, Any]:
    source, target, kind, weight, evidence = edge
    return {
        "owner": owner,
        "source": source,
        "target": target,
        "type": kind,
        "weight": weight,
        "evidence": evidence,
    }
