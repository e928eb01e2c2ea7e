"""Revisions of skills from index and history together: lists, reads by seq, comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from config.errors import NotFoundError, TransientError, UsageError
from config.settings import Settings
from graph.protocol import SkillGraph
from graph.records import CatalogEntry, SkillState
from search.protocol import SearchIndex
from search.review_store import ReviewStore
from search.revision_history import KeptRevision, Pin, RevisionHistory
from skills.record import ParsedSkill, RevisionKey
from skills.review import CountedFindings, ReviewRecord, Reviews
from skills.revision_diff import RevisionDiff, compare_revisions
from skills.scanner import rescan
from skills.skill_policy import SkillPolicy, is_reviewed_source
from skills.skill_uri import SKILL_FILE
from tasks.ingest.held.reviewed import UPDATE_KINDS, is_reviewed
from tasks.query.policy_filter import make_policy
from workers.library.skill_data import explain_unpublished, finding_data, format_time

_MAX_ATTEMPTS = 3
_MAX_DIGITS = 19
"""Of a sequence number in 64 bits."""
_CONTEXT_LINES = 2
_MAX_CONTEXT_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision that can be read.

    state: `published`; `held`, as the skill is pinned to another revision or this one waits for
    review; `superseded` by a newer one, or withdrawn. withheld: why the policy would keep it
    out of bundles, None if it would not. findings: of the current scanner, with those that
    count. review: its record as an update. is_reviewed: whether it may be sent if updates of
    its source wait for a person.
    """

    kept: KeptRevision
    state: str
    withheld: str | None
    findings: CountedFindings
    review: ReviewRecord | None = None
    is_reviewed: bool = True

    @property
    def seq(self) -> int:
        """Sequence number of the revision."""
        return self.kept.key.seq

    @property
    def parsed(self) -> ParsedSkill:
        """The parsed skill, with findings of the current scanner."""
        return self.kept.parsed


class RevisionReader:
    """Reads revisions: the published one from the index, earlier ones from the history."""

    def __init__(
        self,
        settings: Settings,
        graph: SkillGraph,
        index: SearchIndex,
        history: RevisionHistory,
        review_store: ReviewStore,
    ) -> None:
        self._settings = settings
        self.graph = graph
        self._index = index
        self._history = history
        self._review_store = review_store

    def parse_name(self, name: str) -> tuple[str, int | None]:
        """Split `SKILL_ID@SEQ` into both; seq is None without one. An id may itself hold an `@`."""
        skill_id, at, seq = name.rpartition("@")
        is_revision = bool(at) and seq.isascii() and seq.isdigit() and len(seq) <= _MAX_DIGITS
        if not is_revision or self.graph.get_entries([name]):
            return name, None
        return skill_id, int(seq)

    def list_revisions(self, skill_id: str) -> list[Revision]:
        """Return the revisions of a skill that can be read, newest first.

        Of successive revisions with the same content, only the newest. Raises NotFoundError if the
        skill does not exist.
        """
        for _ in range(_MAX_ATTEMPTS):
            entry = next(iter(self.graph.get_entries([skill_id])), None)
            found = {one.key.seq: one for one in self._history.list_revisions(skill_id)}
            if entry is None and not found:
                raise NotFoundError(f"no skill {skill_id!r}; `skillbus skills list` lists them")
            if entry is None or not entry.seq:
                return self._describe(list(found.values()), entry)
            key = RevisionKey(skill_id, entry.seq)
            stored = self._index.get_revisions([key]).get(key)
            if stored is not None:
                found[key.seq] = KeptRevision(
                    key, stored.content_hash, stored.parsed, entry.updated
                )
            if key.seq in found:
                newest_first = sorted(found.values(), key=lambda one: -one.key.seq)
                return self._describe(newest_first, entry)
        raise TransientError(f"{skill_id} is being replaced; try again")

    def require_revisions(self, skill_id: str) -> list[Revision]:
        """Return the revisions as `list_revisions` does; raises UsageError if there are none."""
        revisions = self.list_revisions(skill_id)
        if not revisions:
            entry = next(iter(self.graph.get_entries([skill_id])), None)
            reason = explain_unpublished(entry) if entry is not None else ""
            raise UsageError(reason or f"no revision of {skill_id} is kept")
        return revisions

    def _describe(
        self, revisions: Sequence[KeptRevision], entry: CatalogEntry | None
    ) -> list[Revision]:
        if not revisions:
            return []
        policy = self._make_policy([revisions[0].key.skill_id])
        described = []
        newer = ""
        for one in revisions:
            if one.content_hash != newer:
                described.append(policy.describe(one, entry))
            newer = one.content_hash
        return described

    def _make_policy(self, skill_ids: Sequence[str]) -> _RevisionPolicy:
        reviews = self._review_store.get(skill_ids)
        policy = make_policy(self._settings, self.graph.list_sources(), reviews)
        return _RevisionPolicy(self._settings, reviews, policy)

    def read_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Revision]:
        """Return the given revisions that are kept.

        Published revisions take a fixed number of reads; each other revision takes some more.
        """
        if not keys:
            return {}
        entries = {one.skill_id: one for one in self.graph.get_entries(_name_skills(keys))}
        published = [
            key for key in keys if key.skill_id in entries and entries[key.skill_id].seq == key.seq
        ]
        stored = self._index.get_revisions(published)
        policy = self._make_policy(_name_skills(published))
        found = {}
        for key, one in stored.items():
            entry = entries[key.skill_id]
            kept = KeptRevision(key, one.content_hash, one.parsed, entry.updated)
            found[key] = policy.describe(kept, entry)
        for key in keys:
            if key not in found:
                with suppress(NotFoundError):
                    found[key] = self.read_revision(*key)
        return found

    def read_revision(self, skill_id: str, seq: int) -> Revision:
        """Return a revision; raises NotFoundError, which names the kept ones, if it is not kept."""
        revisions = self.list_revisions(skill_id)
        found = next((one for one in revisions if one.seq == seq), None)
        if found is None:
            raise _not_kept(skill_id, seq, revisions)
        return found

    def choose_revision(self, skill_id: str, seq: int | None) -> Revision:
        """Return a revision, by default the published one; raises UsageError if none is
        published, else as `read_revision`."""
        if seq is not None:
            return self.read_revision(skill_id, seq)
        revisions = self.list_revisions(skill_id)
        found = _find_in_state(revisions, "published")
        if found is None:
            raise UsageError(f"{skill_id} is not published: name the revision, as {skill_id}@SEQ")
        return found

    def describe_pins(self, skill_ids: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return the pins of these skills as data, by default all, by skill."""
        return [pin_data(one) for one in self._history.get_pins(skill_ids).values()]

    def find_drift(self, skill_id: str | None = None) -> list[dict[str, Any]]:
        """Compare the held revision of each pinned skill with the published one.

        A row has the pin, and `change` as `compare` returns it, None if nothing is held. Raises
        NotFoundError if the skill is not pinned.
        """
        pins = self._history.get_pins(None if skill_id is None else [skill_id])
        if skill_id is not None and not pins:
            raise not_pinned(skill_id)
        return [
            pin_data(pin) | {"change": self._compare_held(self.list_revisions(pin.skill_id))}
            for pin in pins.values()
        ]

    def _compare_held(self, revisions: Sequence[Revision]) -> dict[str, Any] | None:
        published = _find_in_state(revisions, "published")
        held = _find_in_state(revisions, "held")
        return None if published is None or held is None else compare(published, held)

    def choose_pair(
        self, skill_id: str, before: int | None, after: int | None
    ) -> tuple[Revision, Revision]:
        """Return the two revisions to compare.

        before: by default the newest revision that is older than `after`. after: by
        default the newest one. Raises NotFoundError if one of them is not kept,
        UsageError if there are fewer than two.
        """
        revisions = self.require_revisions(skill_id)
        by_seq = {one.seq: one for one in revisions}
        for seq in (before, after):
            if seq is not None and seq not in by_seq:
                raise _not_kept(skill_id, seq, revisions)
        second = revisions[0] if after is None else by_seq[after]
        if before is not None:
            return by_seq[before], second
        first = next((one for one in revisions if one.seq < second.seq), None)
        if first is None:
            raise UsageError(f"{skill_id} has no revision before {second.seq} to compare it with")
        return first, second


@dataclass(frozen=True, slots=True)
class _RevisionPolicy:
    """Applies settings, sources and reviews to the revisions of some skills."""

    settings: Settings
    reviews: Reviews
    policy: SkillPolicy

    def describe(self, one: KeptRevision, entry: CatalogEntry | None) -> Revision:
        skill_id = one.key.skill_id
        is_published = entry is not None and one.key.seq == entry.seq
        judgements = entry.judgements if entry is not None and is_published else ()
        rescanned = replace(one, parsed=rescan(one.parsed))
        place = (skill_id, one.content_hash, rescanned.parsed.record, judgements)
        violation = self.policy.find_record_violation(*place)
        waits = is_reviewed_source(self.settings.policy, skill_id)
        may_be_sent = not waits or is_reviewed(one, entry, self.reviews)
        withheld = None if may_be_sent else "it was not approved in a review"
        return Revision(
            rescanned,
            _name_state(one, entry),
            violation.reason if violation else withheld,
            self.policy.count_findings(*place),
            self.reviews.find(skill_id, one.content_hash, *UPDATE_KINDS),
            may_be_sent,
        )


def _find_in_state(revisions: Iterable[Revision], state: str) -> Revision | None:
    return next((one for one in revisions if one.state == state), None)


def _name_skills(keys: Sequence[RevisionKey]) -> list[str]:
    return list(dict.fromkeys(key.skill_id for key in keys))


def _name_state(one: KeptRevision, entry: CatalogEntry | None) -> str:
    if entry is not None and entry.state is SkillState.HELD:
        return "superseded" if one.published else "held"
    if entry is None or not entry.seq or one.key.seq < entry.seq:
        return "superseded"
    return "published" if one.key.seq == entry.seq else "held"


def _not_kept(skill_id: str, seq: int, revisions: Sequence[Revision]) -> NotFoundError:
    kept = ", ".join(str(one.seq) for one in revisions) or "none"
    return NotFoundError(f"revision {seq} of {skill_id} is not kept; those that are: {kept}")


def not_pinned(skill_id: str) -> NotFoundError:
    """Return the error for a skill without a pin."""
    return NotFoundError(f"{skill_id} is not pinned; `skillbus pins list` names those that are")


def pin_data(pin: Pin) -> dict[str, Any]:
    """Return a pin as data."""
    return {
        "skill_id": pin.skill_id,
        "seq": pin.seq,
        "reason": pin.reason,
        "pinned_at": format_time(pin.pinned),
    }


def revision_row(revision: Revision, *, include_withheld: bool = True) -> dict[str, Any]:
    """Return a revision in the form of a list entry. include_withheld: whether a withheld revision
    has the author's texts."""
    record, kept = revision.parsed.record, revision.kept
    shown = include_withheld or revision.withheld is None
    return {
        "skill_id": kept.key.skill_id,
        "seq": kept.key.seq,
        "state": revision.state,
        "published_at": (format_time(kept.published) if kept.published else None),
        "content_hash": kept.content_hash,
        "name": record.name,
        "description": record.description if shown else "",
        "licence": record.licence,
        "version": record.version,
        "safety_level": revision.findings.level,
        "lines": len(revision.parsed.lines),
        "tokens": record.tokens,
        "withheld": revision.withheld,
        "review": revision.review.kind.value if revision.review else None,
    }


def revision_detail(revision: Revision, *, include_withheld: bool = True) -> dict[str, Any]:
    """Return a revision with its findings, files and text; a withheld one only as `revision_row`
    does, unless `include_withheld`."""
    row = revision_row(revision, include_withheld=include_withheld)
    if revision.withheld is not None and not include_withheld:
        return row
    record = revision.parsed.record
    return row | {
        "safety": [
            finding_data(one, revision.findings.exempt.get(one))
            for one in revision.findings.findings
        ],
        "files": [
            {"path": one.path, "size": one.size, "sha256": one.sha256} for one in record.files
        ],
        "text": "\n".join(revision.parsed.lines),
    }


def describe_review(reader: RevisionReader, skill_id: str, seq: int | None) -> dict[str, Any]:
    """Return a revision under review as data; `change` is from the published one, or None.

    A finding in SKILL.md has the lines around it, its `context`.

    seq: by default of the held revision, else of the published one. Raises UsageError if no
    revision can be read.
    """
    revisions = reader.require_revisions(skill_id)
    published = _find_in_state(revisions, "published")
    if seq is not None:
        chosen = reader.read_revision(skill_id, seq)
    else:
        chosen = _find_in_state(revisions, "held") or published or revisions[0]
    data = revision_detail(chosen)
    del data["text"]
    for one in data["safety"]:
        one["context"] = _show_context(chosen.parsed, one)
    is_update = published is not None and published.seq != chosen.seq
    return data | {"change": compare(published, chosen) if published and is_update else None}


def _show_context(parsed: ParsedSkill, finding: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the lines around a finding, None for a finding in another file:
    its text is not kept."""
    if finding["file"] != SKILL_FILE or not finding["line"]:
        return None
    first = max(1, finding["line"] - _CONTEXT_LINES)
    lines = parsed.lines[first - 1 : finding["line"] + _CONTEXT_LINES]
    return {"first": first, "lines": [line[:_MAX_CONTEXT_CHARACTERS] for line in lines]}


def compare(before: Revision, after: Revision) -> dict[str, Any]:
    """Return the changes between two revisions of a skill, as data."""
    return {
        "skill_id": after.kept.key.skill_id,
        "from": before.seq,
        "to": after.seq,
        **diff_data(compare_revisions(before.parsed, after.parsed)),
    }


def diff_data(diff: RevisionDiff) -> dict[str, Any]:
    """Return a difference as data."""
    return {
        "fields": [one._asdict() for one in diff.fields],
        "files": {
            "added": list(diff.files_added),
            "removed": list(diff.files_removed),
            "changed": list(diff.files_changed),
        },
        "scripts": list(diff.scripts),
        "findings": {
            "added": [finding_data(one) for one in diff.findings_added],
            "removed": [finding_data(one) for one in diff.findings_removed],
        },
        "added_lines": diff.added_lines,
        "removed_lines": diff.removed_lines,
        "diff": list(diff.lines),
    }
