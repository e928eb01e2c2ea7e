"""Decisions of people about skills: waived findings, confirmed harm, and reviewed updates.

Every record is about one content of one skill, identified by the content hash. The hash covers the
bytes of all files of the folder, so a different line end is already another content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from skills.judgement import JUDGEMENT_RULE
from skills.record import SafetyFinding
from skills.scanner import MAX_FINDINGS, find_rule, list_rules

_JUDGED = "judged by "


class ReviewKind(StrEnum):
    """Kind of a review record.

    The last three kinds are about an update; a content has at most one record of these kinds.
    """

    WAIVER = "waiver"
    CONFIRMATION = "confirmation"
    WAITING = "waiting"
    APPROVAL = "approval"
    REJECTION = "rejection"


POLICY_KINDS = frozenset({ReviewKind.WAIVER, ReviewKind.CONFIRMATION})
"""Kinds that the policy uses; the other kinds concern only ingest."""


class ReviewSlot(NamedTuple):
    """Key of a record within a skill: a content and a topic of review."""

    content_hash: str
    topic: str


@dataclass(frozen=True, slots=True)
class ReviewRecord:
    """A decision of a person, or a note that a decision is pending (`WAITING`).

    rule, findings: for a waiver, the id of the rule and the fingerprints of its findings. seq: seq
    of the revision with this content at the time of the decision. principal: name of the person, as
    in the audit log. recorded: seconds since the epoch.
    """

    skill_id: str
    content_hash: str
    kind: ReviewKind
    rule: str = ""
    findings: tuple[str, ...] = ()
    seq: int = 0
    principal: str = ""
    reason: str = ""
    recorded: float = 0.0

    @property
    def slot(self) -> ReviewSlot:
        """The slot of the record; a new record replaces an earlier record of the same slot."""
        if self.kind is ReviewKind.WAIVER:
            return ReviewSlot(self.content_hash, f"rule {self.rule}")
        if self.kind is ReviewKind.CONFIRMATION:
            return ReviewSlot(self.content_hash, "safety")
        return ReviewSlot(self.content_hash, "update")


@dataclass(frozen=True, slots=True)
class Reviews:
    """Records by skill, as of one moment.

    version: version of the store, see `ReviewStore.get_version`. confirmed: contents that a person
    confirmed as harmful, in any skill, since a copy or a renamed folder is equally harmful.
    """

    version: int = 0
    by_skill: Mapping[str, tuple[ReviewRecord, ...]] = field(default_factory=dict)
    confirmed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Collect the confirmed contents."""
        confirmed = frozenset(
            one.content_hash
            for records in self.by_skill.values()
            for one in records
            if one.kind is ReviewKind.CONFIRMATION
        )
        object.__setattr__(self, "confirmed", confirmed)

    def get(self, skill_id: str, content_hash: str) -> list[ReviewRecord]:
        """Return the records about a content of a skill."""
        found = self.by_skill.get(skill_id, ())
        return [one for one in found if one.content_hash == content_hash]

    def find(self, skill_id: str, content_hash: str, *kinds: ReviewKind) -> ReviewRecord | None:
        """Return the first record of one of these kinds about a content, None without one."""
        found = self.get(skill_id, content_hash)
        return next((one for one in found if one.kind in kinds), None)


NO_REVIEWS = Reviews()


class Exemption(NamedTuple):
    """Reason why a finding does not count: a waiver, or None if a setting suppresses its rule."""

    waiver: ReviewRecord | None


@dataclass(frozen=True, slots=True)
class CountedFindings:
    """Findings, and the level of those that count. exempt: findings that do not count -> reason."""

    findings: tuple[SafetyFinding, ...]
    level: int
    exempt: Mapping[SafetyFinding, Exemption]

    @property
    def counted(self) -> tuple[SafetyFinding, ...]:
        """The findings that count."""
        return tuple(one for one in self.findings if one not in self.exempt)


def get_rule_id(finding: SafetyFinding) -> str:
    """Return the id by which the rule of a finding is waived or suppressed.

    For findings of older scanners, whose rule is unknown, it is their kind.
    """
    rule = find_rule(finding)
    if rule is not None:
        return rule.id
    return JUDGEMENT_RULE if finding.reason.startswith(_JUDGED) else finding.kind


def collect_rule_ids(findings: Iterable[SafetyFinding]) -> tuple[str, ...]:
    """Return the ids of the rules of findings, sorted."""
    return tuple(sorted({get_rule_id(one) for one in findings}))


def list_rule_ids() -> list[str]:
    """Return the ids of all rules, including that of judgements."""
    return sorted((*list_rules(), JUDGEMENT_RULE))


def fingerprint(finding: SafetyFinding) -> str:
    """Return an id of a finding within a content, as 16 hexadecimal digits.

    For a judgement it covers the model and its words, so a waiver of one judgement does not cover
    another.
    """
    parts = (get_rule_id(finding), str(finding.level), finding.file, str(finding.line))
    return hashlib.sha256(
        "\0".join((*parts, finding.reason)).encode("utf-8", "replace")
    ).hexdigest()[:16]


def count_findings(
    findings: Sequence[SafetyFinding],
    level: int,
    records: Iterable[ReviewRecord],
    suppressed: frozenset[str],
) -> CountedFindings:
    """Determine the findings that are neither waived nor of a suppressed rule, and their level.

    level: level of all findings. records: records about their content. If a scan reached its limit,
    it kept only the most severe findings; the dropped findings may be as severe as the least kept
    finding, so that level counts too.
    """
    waivers = {
        mark: one for one in records if one.kind is ReviewKind.WAIVER for mark in one.findings
    }
    exempt = dict(_find_exempt(findings, waivers, suppressed)) if waivers or suppressed else {}
    if not exempt:
        return CountedFindings(tuple(findings), level, {})
    counted = [one.level for one in findings if one not in exempt]
    full = [part for part in _split_by_scan(findings) if len(part) >= MAX_FINDINGS]
    counted += [min(one.level for one in part) for part in full]
    return CountedFindings(tuple(findings), max(counted, default=0), exempt)


def _find_exempt(
    findings: Iterable[SafetyFinding],
    waivers: Mapping[str, ReviewRecord],
    suppressed: frozenset[str],
) -> Iterable[tuple[SafetyFinding, Exemption]]:
    for one in findings:
        if suppressed and get_rule_id(one) in suppressed:
            yield one, Exemption(None)
        elif waivers and (waiver := waivers.get(fingerprint(one))) is not None:
            yield one, Exemption(waiver)


def _split_by_scan(findings: Sequence[SafetyFinding]) -> tuple[list[SafetyFinding], ...]:
    """Split findings into those in SKILL.md and those in other files; each scan has its limit."""
    return [one for one in findings if not one.file], [one for one in findings if one.file]
