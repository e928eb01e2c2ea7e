"""What people decided about skills: waived findings, confirmed ones, and reviewed updates.

Every record is about one content of one skill, by its content hash, which is of the bytes of
all files of the folder: any other bytes, were it another line end, are another content.
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
    """What a record says. The last three are about an update, and of them a content has one."""

    WAIVER = "waiver"
    CONFIRMATION = "confirmation"
    WAITING = "waiting"
    APPROVAL = "approval"
    REJECTION = "rejection"


POLICY_KINDS = frozenset({ReviewKind.WAIVER, ReviewKind.CONFIRMATION})
"""Kinds that the policy asks for; the others concern ingest alone."""


class ReviewSlot(NamedTuple):
    """What a skill has one record of: a content, and a topic of review."""

    content_hash: str
    topic: str


@dataclass(frozen=True, slots=True)
class ReviewRecord:
    """A decision of a person, or that one is wanted (`WAITING`).

    rule, findings: of a waiver, the id of the rule and the fingerprints of what it found. seq: of
    the revision that had the content when it was decided. principal: as the audit log names it.
    recorded: seconds since the epoch.
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
        """What the record takes the place of an earlier one of."""
        if self.kind is ReviewKind.WAIVER:
            return ReviewSlot(self.content_hash, f"rule {self.rule}")
        if self.kind is ReviewKind.CONFIRMATION:
            return ReviewSlot(self.content_hash, "safety")
        return ReviewSlot(self.content_hash, "update")


@dataclass(frozen=True, slots=True)
class Reviews:
    """Records by skill, as of one moment.

    version: of the store, see `ReviewStore.get_version`. confirmed: the contents that a person
    confirmed as harmful, in whichever skill, as a copy or a renamed folder is no better.
    """

    version: int = 0
    by_skill: Mapping[str, tuple[ReviewRecord, ...]] = field(default_factory=dict)
    confirmed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Find the confirmed contents."""
        confirmed = frozenset(
            one.content_hash
            for records in self.by_skill.values()
            for one in records
            if one.kind is ReviewKind.CONFIRMATION
        )
        object.__setattr__(self, "confirmed", confirmed)

    def get(self, skill_id: str, content_hash: str) -> list[ReviewRecord]:
        """The records about a content of a skill."""
        found = self.by_skill.get(skill_id, ())
        return [one for one in found if one.content_hash == content_hash]

    def find(self, skill_id: str, content_hash: str, *kinds: ReviewKind) -> ReviewRecord | None:
        """The record of one of these kinds about a content, None without one."""
        found = self.get(skill_id, content_hash)
        return next((one for one in found if one.kind in kinds), None)


NO_REVIEWS = Reviews()


class Exemption(NamedTuple):
    """Why a finding does not count: a waiver, or None where a setting suppresses its rule."""

    waiver: ReviewRecord | None


@dataclass(frozen=True, slots=True)
class CountedFindings:
    """Findings, and the level of those that count. exempt: the others, each with the reason."""

    findings: tuple[SafetyFinding, ...]
    level: int
    exempt: Mapping[SafetyFinding, Exemption]

    @property
    def counted(self) -> tuple[SafetyFinding, ...]:
        """The findings that count."""
        return tuple(one for one in self.findings if one not in self.exempt)


def get_rule_id(finding: SafetyFinding) -> str:
    """The id by which the rule of a finding is waived or suppressed.

    Findings of older scanners, whose rule is not known, have their kind.
    """
    rule = find_rule(finding)
    if rule is not None:
        return rule.id
    return JUDGEMENT_RULE if finding.reason.startswith(_JUDGED) else finding.kind


def collect_rule_ids(findings: Iterable[SafetyFinding]) -> tuple[str, ...]:
    """The ids of the rules of findings, sorted."""
    return tuple(sorted({get_rule_id(one) for one in findings}))


def list_rule_ids() -> list[str]:
    """The ids of all rules, that of second opinions included."""
    return sorted((*list_rules(), JUDGEMENT_RULE))


def fingerprint(finding: SafetyFinding) -> str:
    """What tells a finding from others in the same content, as 16 hexadecimal digits.

    Of a second opinion this covers the model and its words: another one is not waived with it.
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
    """The level of those findings that are neither waived nor of a suppressed rule.

    level: of all. records: about the content that has them. Where a scan found so much that it kept
    only the gravest, what it left out may be as grave as the least that it kept, and counts so.
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
    """Those in SKILL.md and those in other files, which are limited apart."""
    return [one for one in findings if not one.file], [one for one in findings if one.file]
