"""Decisions of people about skills: waivers of findings, quarantine, and updates under review.

Every decision is about one content of a skill. It is recorded first; its consequences (an ingest,
for an approval) are requested next, or by the reconciler if that fails.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from config.errors import NotFoundError, UsageError
from config.settings import Settings
from graph.protocol import SkillGraph
from search.review_store import ReviewStore
from skills.record import SafetyFinding
from skills.review import ReviewKind, ReviewRecord, fingerprint, get_rule_id
from skills.skill_policy import check_rule_ids, is_reviewed_source
from tasks.query.process_state.review_cache import ReviewCache
from workers.library.pins import request_ingest
from workers.library.reasons import check_reason
from workers.library.revisions import Revision, RevisionReader
from workers.library.skill_data import decision_data
from workers.library.skill_reader import require_entry

_SAFETY_KINDS = (ReviewKind.WAIVER, ReviewKind.CONFIRMATION)


class ReviewDecision(StrEnum):
    """Decision of a person. The first two are about findings, the others about an update."""

    RELEASE = "release"
    CONFIRM = "confirm"
    APPROVE = "approve"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Reviewer:
    """A person who decides, with the reason. principal: name of the person in the audit log."""

    principal: str
    reason: str


class SkillReviews:
    """Records and revokes decisions. cache: of this process, in which they count at once."""

    def __init__(
        self,
        settings: Settings,
        graph: SkillGraph,
        store: ReviewStore,
        revisions: RevisionReader,
        cache: ReviewCache,
    ) -> None:
        self._settings = settings
        self._graph = graph
        self._store = store
        self._revisions = revisions
        self._cache = cache

    # -- waivers

    def waive(self, skill_id: str, seq: int | None, rule: str, reviewer: Reviewer) -> ReviewRecord:
        """Waive the findings of a rule in a revision, by default the published one.

        A waiver of the same rule and content is replaced. Raises NotFoundError if the skill
        or revision does not exist, UsageError for an invalid reason, an unknown rule, and a
        rule without findings there.
        """
        check_reason(reviewer.reason, "a decision")
        check_rule_ids([rule], "rule of the waiver")
        revision = self._revisions.choose_revision(skill_id, seq)
        found = [one for one in revision.findings.findings if get_rule_id(one) == rule]
        if not found:
            rules = {get_rule_id(one) for one in revision.findings.findings}
            others = ", ".join(sorted(rules)) or "none"
            raise UsageError(
                f"{rule} finds nothing in {skill_id}@{revision.seq}; rules with findings: {others}"
            )
        record = _make_waiver(revision, rule, found, reviewer)
        self._save([record])
        return record

    def remove_waiver(self, skill_id: str, rule: str) -> list[ReviewRecord]:
        """Remove the waivers of a rule for all contents of a skill; NotFoundError if none."""
        removed = self._remove(
            skill_id,
            (
                one
                for one in self._read(skill_id)
                if one.kind is ReviewKind.WAIVER and one.rule == rule
            ),
        )
        if not removed:
            raise NotFoundError(
                f"{rule} is not waived for {skill_id}; `skillbus waivers list` lists the waivers"
            )
        return removed

    # -- decisions

    def decide(
        self, decision: ReviewDecision, skill_id: str, seq: int | None, reviewer: Reviewer
    ) -> dict[str, Any]:
        """Carry out a decision, and return it as data. Making it again changes only its reason.

        seq: of the revision; by default the published one, but an approval and a rejection need it.
        Raises NotFoundError if the skill or revision does not exist, UsageError for an invalid
        reason and if there is nothing to decide.
        """
        check_reason(reviewer.reason, "a decision")
        if decision in (ReviewDecision.APPROVE, ReviewDecision.REJECT):
            revision = self._choose_update(skill_id, seq)
            self._decide_update(revision, decision, reviewer)
        else:
            revision = self._revisions.choose_revision(skill_id, seq)
            if decision is ReviewDecision.RELEASE:
                self._release(revision, reviewer)
            else:
                self._confirm(revision, reviewer)
        # The approved content may already be published, under another seq.
        withheld = [
            one.withheld
            for one in self._revisions.list_revisions(skill_id)
            if one.kept.content_hash == revision.kept.content_hash
        ]
        return {
            "skill_id": skill_id,
            "seq": revision.seq,
            "decision": decision.value,
            "reason": reviewer.reason.strip(),
            "by": reviewer.principal,
            "withheld": withheld[0] if withheld else None,
        }

    def reopen(self, skill_id: str) -> list[ReviewRecord]:
        """Revoke the decisions about the current contents of a skill, which waits for review again.

        For the published content these are waivers and the confirmation; for the held content, the
        rejection. Raises NotFoundError if there are no decisions.
        """
        revisions = self._revisions.list_revisions(skill_id)
        present = {one.kept.content_hash for one in revisions if one.state != "superseded"}
        kinds = (*_SAFETY_KINDS, ReviewKind.REJECTION)
        decided = [
            one for one in self._read(skill_id) if one.content_hash in present and one.kind in kinds
        ]
        if not decided:
            raise NotFoundError(
                f"there is no decision about {skill_id}; `skillbus review list` lists decisions"
            )
        waiting = [
            ReviewRecord(skill_id, one.content_hash, ReviewKind.WAITING, seq=one.seq)
            for one in decided
            if one.kind is ReviewKind.REJECTION
        ]
        self._remove(skill_id, (one for one in decided if one.kind is not ReviewKind.REJECTION))
        self._save(waiting)
        return decided

    def _release(self, revision: Revision, reviewer: Reviewer) -> None:
        """Waive all findings, then end the confirmation, so that a crash leaves it withheld."""
        findings = revision.findings.findings
        by_rule: dict[str, list[SafetyFinding]] = {}
        for one in findings:
            by_rule.setdefault(get_rule_id(one), []).append(one)
        confirmed = self._find(revision, ReviewKind.CONFIRMATION)
        if not by_rule and not confirmed:
            raise UsageError(f"{revision.kept.key} has no findings: there is nothing to release")
        self._save(
            [_make_waiver(revision, rule, found, reviewer) for rule, found in by_rule.items()]
        )
        self._remove(revision.kept.key.skill_id, confirmed)

    def _confirm(self, revision: Revision, reviewer: Reviewer) -> None:
        """Record the confirmation, then end the waivers, so that a crash leaves it withheld."""
        self._save([_make_record(revision, ReviewKind.CONFIRMATION, reviewer)])
        waivers = self._find(revision, ReviewKind.WAIVER)
        self._remove(revision.kept.key.skill_id, waivers)

    def _decide_update(
        self, revision: Revision, decision: ReviewDecision, reviewer: Reviewer
    ) -> None:
        key = revision.kept.key
        entry = require_entry(self._graph, key.skill_id)
        is_published = entry.content_hash == revision.kept.content_hash
        if decision is ReviewDecision.REJECT:
            if is_published:
                raise UsageError(
                    f"{key} is published: pin the skill to an earlier revision, or withhold it "
                    "with `skillbus review confirm`"
                )
            self._save([_make_record(revision, ReviewKind.REJECTION, reviewer)])
            return
        if key.seq < entry.seq and not is_published:
            raise UsageError(
                f"{key} is older than the published revision {entry.seq}: to go back to it, use "
                "`skillbus pins add`"
            )
        self._save([_make_record(revision, ReviewKind.APPROVAL, reviewer)])
        request_ingest(self._graph, entry)

    # -- reading

    def _choose_update(self, skill_id: str, seq: int | None) -> Revision:
        if not is_reviewed_source(self._settings.policy, skill_id):
            raise UsageError(
                f"updates of {skill_id} need no review: its source is not in policy.review"
            )
        if seq is None:
            raise UsageError(
                f"name the revision that you reviewed, as {skill_id}@SEQ: a newer one may exist"
            )
        # An approved content is published under another seq; the same decision is about both.
        decided = {one.content_hash for one in self._read(skill_id) if one.seq == seq}
        revisions = self._revisions.list_revisions(skill_id)
        same = [one for one in revisions if one.kept.content_hash in decided]
        is_listed = any(one.seq == seq for one in revisions)
        return same[0] if same and not is_listed else self._revisions.read_revision(skill_id, seq)

    def _read(self, skill_id: str) -> tuple[ReviewRecord, ...]:
        return self._store.get([skill_id]).by_skill.get(skill_id, ())

    def _find(self, revision: Revision, kind: ReviewKind) -> list[ReviewRecord]:
        return [
            one
            for one in self._read(revision.kept.key.skill_id)
            if one.kind is kind and one.content_hash == revision.kept.content_hash
        ]

    # -- writing

    def _save(self, records: list[ReviewRecord]) -> None:
        self._store.save(records)
        self._cache.expire()

    def _remove(self, skill_id: str, records: Iterable[ReviewRecord]) -> list[ReviewRecord]:
        removed = self._store.remove(skill_id, [one.slot for one in records])
        self._cache.expire()
        return removed


def _make_waiver(
    revision: Revision, rule: str, found: Iterable[SafetyFinding], reviewer: Reviewer
) -> ReviewRecord:
    marks = tuple(sorted(map(fingerprint, found)))
    return _make_record(revision, ReviewKind.WAIVER, reviewer, rule, marks)


def _make_record(
    revision: Revision,
    kind: ReviewKind,
    reviewer: Reviewer,
    rule: str = "",
    findings: tuple[str, ...] = (),
) -> ReviewRecord:
    key, content_hash = revision.kept.key, revision.kept.content_hash
    return ReviewRecord(
        *(key.skill_id, content_hash, kind, rule, findings, key.seq),
        *(reviewer.principal, reviewer.reason.strip(), time.time()),
    )


def waiver_data(record: ReviewRecord, state: str) -> dict[str, Any]:
    """Return a waiver as data. state: `in force`, or `ended` if the skill has another content."""
    return {
        "skill_id": record.skill_id,
        "rule": record.rule,
        "seq": record.seq,
        "content_hash": record.content_hash,
        "findings": len(record.findings),
        "state": state,
        **decision_data(record),
    }
