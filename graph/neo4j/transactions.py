"""Transactions of the Neo4j store: publishing and withdrawing skills, changing links.

Each transaction first locks all skills that it will touch, by skill_id, then compares, writes, and
takes the epoch last. Thus writers cannot deadlock, and the epoch's lock is held briefly. The skills
to lock are looked up before locking. If further skills turn out to be needed after locking, the
transaction is rolled back (`MissingLocksError`) and repeated with locks on all of them.

Common parameters: `run` runs a statement; `retried`: an earlier attempt may have been committed
although its answer was lost, so that revisions it wrote count as moved; `extra_locks`: skills to
lock in addition to those that are looked up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any, NamedTuple

from graph.neo4j.client import Rows
from graph.neo4j.rows import index_key, link_to_row, links_from_rows
from graph.records import (
    DismissedLink,
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

RunNamed = Callable[..., Rows]
"""Runs a statement by name, with keyword parameters, in the transaction."""


class MissingLocksError(Exception):
    """A transaction needs to touch skills that it has not locked; nothing was written."""

    def __init__(self, skill_ids: Set[str]) -> None:
        super().__init__(f"{len(skill_ids)} skills were not locked")
        self.skill_ids = skill_ids


class _LockedSkill(NamedTuple):
    """A locked skill: its pointer, the highest seq with an outcome, its name key or "", and whether
    an ingest is requested."""

    seq: int
    served: int
    name: str
    waiting: bool


def publish(
    run: RunNamed, retried: bool, extra_locks: Set[str], given: Sequence[Publication]
) -> list[RevisionKey]:
    """Move these pointers, one per skill and sorted by skill_id; return the keys that moved.

    Raises MissingLocksError.
    """
    ids = [one.key.skill_id for one in given]
    before: dict[str, str] = dict(run("name_keys", ids=ids))
    locked_skills = _lock(
        run,
        [(one.key.skill_id, one.source_id, one.path) for one in given],
        find_mentioning(run, _changed_names(given, before)) | extra_locks,
    )
    moved = [one for one in given if _is_due(one, locked_skills[one.key.skill_id])]
    if moved:
        now = {skill_id: one.name for skill_id, one in locked_skills.items()}
        marked = find_mentioning(run, _changed_names(moved, now))
        require_locked(marked, locked_skills)
        _write_facts(run, moved)
        epoch = run("next_epoch")[0][0]
        run("publish", rows=[_published_properties(one) for one in moved], epoch=epoch)
        if marked:
            run("mark_for_linking", ids=sorted(marked), epoch=epoch)
    keys = [one.key for one in moved]
    if retried:
        keys += [one.key for one in given if one.key.seq == locked_skills[one.key.skill_id].seq]
    return keys


def _is_due(one: Publication, now: _LockedSkill) -> bool:
    """Return whether the pointer moves to this publication."""
    may_replace = not one.replaces or (one.replaces == now.seq and not now.waiting)
    return may_replace and one.key.seq > now.served


def withdraw(
    run: RunNamed, retried: bool, extra_locks: Set[str], given: Sequence[Withdrawal]
) -> tuple[list[str], set[str]]:
    """Withdraw these pointers with facts and links; one per skill, sorted by skill_id.

    The seq is recorded in any case, so that older events are stale. Returns the withdrawn skills,
    and the skills whose links changed as a result. Raises MissingLocksError.
    """
    ids = [one.key.skill_id for one in given]
    before: dict[str, str] = dict(run("name_keys", ids=ids))
    others = find_mentioning(run, before.items())
    others |= {other for (other,) in run("linked_skills", ids=sorted(before))} if before else set()
    own = [(one.key.skill_id, one.source_id, one.path) for one in given]
    locked_skills = _lock(run, own, others | extra_locks)
    going = [one for one in given if one.key.seq > locked_skills[one.key.skill_id].served]
    pointed = [one.key.skill_id for one in going if locked_skills[one.key.skill_id].seq]
    touched: set[str] = set()
    if pointed:
        marked = find_mentioning(run, ((one, locked_skills[one].name) for one in pointed))
        marked |= {owner for (owner,) in run("link_owners", ids=pointed)}
        require_locked(
            marked.union(other for (other,) in run("linked_skills", ids=pointed)), locked_skills
        )
        touched = {end for ends in run("delete_links_of", ids=pointed) for end in ends}
        run("drop_facts", ids=pointed)
        run("drop_mentions", ids=pointed)
        _write_rules(run, {one.key: () for one in going})
        epoch = run("next_epoch")[0][0]
        run("mark_for_linking", ids=sorted(marked), epoch=epoch)
        run("set_row_epochs", ids=sorted(touched), epoch=epoch)
    if going:
        rows = [_withdrawal_row(one) for one in going]
        run("withdraw", rows=rows, blank=_WITHDRAWN_PROPERTIES, epoch=epoch if pointed else 0)
    if retried:
        pointed += [
            one.key.skill_id
            for one in given
            if one.key.seq == locked_skills[one.key.skill_id].served
        ]
    return pointed, touched


def replace_links(
    run: RunNamed, retried: bool, extra_locks: Set[str], links: Mapping[str, Sequence[Link]]
) -> set[str]:
    """Replace the links of each owner by these; return the skills whose links may have changed.

    Raises MissingLocksError.
    """
    named = {end for owned in links.values() for link in owned for end in link.ends}
    locked_skills = dict(run("lock", ids=sorted(named | links.keys() | extra_locks)))
    published = {skill_id for skill_id, seq in locked_skills.items() if seq}
    owners = sorted(published & links.keys())
    stored = {
        link
        for owner, owned in run("owned", ids=owners)
        for link in links_from_rows([owner, *values] for values in owned)
    }
    dismissed = {
        LinkKey(source, target, LinkType[kind])
        for source, target, kind, *_ in run("dismissed_links")
    }
    wanted: set[Link] = set()
    incomplete = []
    for owner in owners:
        allowed = [link for link in links[owner] if link.key not in dismissed]
        kept = [link for link in allowed if published.issuperset(link.ends)]
        if len(kept) < len(allowed):
            incomplete.append(owner)
        wanted.update(merge_duplicate_links(kept))
    gone, new = stored - wanted, wanted - stored
    require_locked({end for link in gone for end in link.ends}, locked_skills)
    for name, changed in (("delete_links", gone), ("add_links", new)):
        if changed:
            ordered = sorted(changed, key=attrgetter("owned_key"))
            run(name, rows=[link_to_row(link) for link in ordered])
    touched = {end for link in gone | new for end in link.ends}
    if touched or incomplete:
        epoch = run("next_epoch")[0][0]
        run("mark_for_linking", ids=incomplete, epoch=epoch)
        run("set_row_epochs", ids=sorted(touched), epoch=epoch)
    return touched.union(locked_skills) if retried else touched


def dismiss_link(
    run: RunNamed, retried: bool, extra_locks: Set[str], dismissed: DismissedLink
) -> set[str]:
    """Record a dismissal, delete the link, and mark its owners and ends for linking.

    Returns the skills whose links changed. Raises MissingLocksError.
    """
    del retried
    key = dismissed.key
    owners = {link.owner for link in _read_links(run, key)}
    locked = dict(run("lock", ids=sorted({*key[:2]} | owners | extra_locks)))
    links = _read_links(run, key)
    require_locked({link.owner for link in links}, locked)
    run(
        "dismiss_link",
        source=key.source,
        target=key.target,
        type=key.type.name,
        reason=dismissed.reason,
        dismissed=dismissed.dismissed,
    )
    if links:
        run("delete_links", rows=[link_to_row(link) for link in links])
    marked = {*key[:2]}.union(link.owner for link in links) & locked.keys()
    touched = {end for link in links for end in link.ends}
    epoch = run("next_epoch")[0][0]
    run("mark_for_linking", ids=sorted(marked), epoch=epoch)
    run("set_row_epochs", ids=sorted(touched), epoch=epoch)
    return touched


def restore_link(run: RunNamed, retried: bool, extra_locks: Set[str], key: LinkKey) -> bool:
    """Delete a dismissal and mark the skills that may own the link; False without a dismissal."""
    ends = sorted({key.source, key.target})
    marked = {*ends} | find_mentioning(run, map(tuple, run("name_keys", ids=ends)))
    locked = dict(run("lock", ids=sorted(marked | extra_locks)))
    # Skills that mention these names may have been added meanwhile.
    mentioning = find_mentioning(run, map(tuple, run("name_keys", ids=ends)))
    require_locked(mentioning, locked)
    found = run("restore_link", source=key.source, target=key.target, type=key.type.name)[0][0]
    if found:
        ids = sorted(mentioning.union(ends) & locked.keys())
        run("mark_for_linking", ids=ids, epoch=run("next_epoch")[0][0])
    return bool(found) or retried


def save_judgements(
    run: RunNamed,
    retried: bool,
    extra_locks: Set[str],
    model: str,
    given: Sequence[tuple[str, str, Judgement | None]],
) -> None:
    """Store a model's judgements of skills whose content is still the judged content.

    given: (skill_id, content hash, judgement), sorted by skill_id. Repeating a committed attempt
    changes nothing.
    """
    del retried
    wanted = {skill_id: (content_hash, one) for skill_id, content_hash, one in given}
    run("lock", ids=sorted(wanted.keys() | extra_locks))
    changed: list[list[str | None]] = []
    for skill_id, content_hash, stored in run("judgements", ids=sorted(wanted)):
        about, judgement = wanted[skill_id]
        now = replace_judgement(stored, model, judgement)
        if about == content_hash and now != stored:
            changed.append([skill_id, now or None])
    if changed:
        run("save_judgements", rows=sorted(changed, key=lambda row: row[0] or ""))
        epoch = run("next_epoch")[0][0]
        run("set_row_epochs", ids=sorted(row[0] or "" for row in changed), epoch=epoch)


def save_scans(
    run: RunNamed,
    retried: bool,
    scans: Sequence[tuple[RevisionKey, RevisionScan]],
    scanner_version: int,
) -> None:
    """Save scans, sorted by skill_id. Repeating a committed attempt changes nothing."""
    del retried
    rows = [[*key, scan.safety_level or None, scan.has_scripts] for key, scan in scans]
    saved = {skill_id for (skill_id,) in run("save_scans", rows=rows, scanner=scanner_version)}
    _write_rules(run, {key: scan.rules for key, scan in scans if key.skill_id in saved})


def mark_for_linking(run: RunNamed, retried: bool, skill_ids: Sequence[str]) -> None:
    """Mark these skills for linking; unpublished skills are ignored."""
    del retried
    run("lock", ids=sorted(skill_ids))
    run("mark_for_linking", ids=sorted(skill_ids), epoch=run("next_epoch")[0][0])


def _read_links(run: RunNamed, key: LinkKey) -> list[Link]:
    [(links,)] = run("links_among", ids=[key.source, key.target])
    return [link for link in links_from_rows(links) if link.key == key]


def _lock(
    run: RunNamed, own: Iterable[tuple[str, str, str]], others: Iterable[str]
) -> dict[str, _LockedSkill]:
    """Lock these skills in order of skill_id; missing skills are added first.

    own: (skill_id, source_id, path) of skills to lock. others: ids of further skills.
    """
    rows = {skill_id: (skill_id, *skill_id.partition(":")[::2]) for skill_id in others}
    rows |= {row[0]: row for row in own}
    found = run("lock_or_add", rows=[list(rows[skill_id]) for skill_id in sorted(rows)])
    return {row[0]: _LockedSkill(row[1], row[2], row[3] or "", row[4] is not None) for row in found}


def require_locked(skill_ids: Set[str], locked: Mapping[str, object]) -> None:
    """Raise MissingLocksError unless all these skills are locked."""
    late = skill_ids - locked.keys()
    if late:
        raise MissingLocksError(late)


def _changed_names(
    given: Iterable[Publication], before: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield (skill_id, name key) of the names that these publications add or remove."""
    for one in given:
        key, old = _name_key(one), before.get(one.key.skill_id, "")
        if key != old:
            yield one.key.skill_id, key
            yield one.key.skill_id, old


def find_mentioning(run: RunNamed, names: Iterable[tuple[str, str]]) -> set[str]:
    """Return the skills that mention any of these skills, by name or by id.

    names: (skill_id, name key); an empty name is not looked up.
    """
    changed = set(names)
    if not changed:
        return set()
    keys = sorted({index_key(normalise_name(skill_id)) for skill_id, _ in changed})
    pairs = sorted([name, get_source_id(skill_id)] for skill_id, name in changed if name)
    return {skill_id for (skill_id,) in run("find_mentioning", names=pairs, keys=keys)}


def _name_key(one: Publication) -> str:
    return index_key(normalise_name(one.name))


def _published_properties(one: Publication) -> dict[str, Any]:
    values = published_values(one)
    # Empty values are not stored; False is known, unlike null.
    shown = {name: value if value or value is False else None for name, value in values.items()}
    shown |= {
        "source_id": one.source_id,
        "path": one.path,
        "name_key": _name_key(one) or None,
        "reason": None,
        "parsed_seq": one.key.seq,
        "scanned_seq": None if one.has_scripts is None else one.key.seq,
    }
    return {
        "skill_id": one.key.skill_id,
        "seq": one.key.seq,
        "shown": shown,
        "has_vectors": one.has_vectors,
    }


_WITHDRAWN_PROPERTIES = dict.fromkeys(
    (
        "name", "name_key", "description", "content_hash", "warnings", "safety_level", "scanner",
        "tokens", "language", "licence", "without_vectors", "paged", "unpaged", "mark_epoch",
        "judgements", "has_scripts", "scanned_seq", "parser", "parsed_seq",
    )
)  # fmt: skip
"""Properties of a skill that are removed with its pointer."""


def _withdrawal_row(one: Withdrawal) -> dict[str, Any]:
    return {
        "skill_id": one.key.skill_id,
        "seq": one.key.seq,
        "state": one.state.value,
        "reason": one.reason or None,
        "updated": time.time(),
    }


def _write_facts(run: RunNamed, moved: Sequence[Publication]) -> None:
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
    _write_rules(run, {one.key: one.rules for one in moved})


def _write_rules(run: RunNamed, rules: Mapping[RevisionKey, Sequence[str]]) -> None:
    """Replace the stored rules of each skill by these."""
    if rules:
        run("drop_finding_rules", ids=[key.skill_id for key in rules])
    rows = [[rule, *key] for key, names in rules.items() for rule in names]
    if rows:
        run("put_finding_rules", rows=rows)
