"""Decides which skills may be sent, by scanner level, licence and source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from config.bundle_settings import PolicySettings
from config.errors import UsageError
from skills import licences
from skills.judgement import Judgement, find_judgement, with_judgement
from skills.record import SkillRecord, get_source_id
from skills.review import (
    NO_REVIEWS,
    CountedFindings,
    Reviews,
    count_findings,
    list_rule_ids,
)

ViolationKind = Literal["safety", "licence", "source"]


class PolicyViolation(NamedTuple):
    """Reason why a skill is withheld. It may quote the skill's licence, which is untrusted.

    setting: setting that would send the skill, without text of the skill; "" if unknown.
    """

    kind: ViolationKind
    reason: str
    setting: str = ""


@dataclass(frozen=True, slots=True)
class SkillPolicy:
    """Policy from the settings, the sources and the decisions of people about skills.

    All code that sends skills calls `find_record_violation` for a revision that it has read. From
    data of the catalog, `find_violation` gives the same result unless `needs_record` is true.
    judge: model whose judgements count, "" for none. licences: allowed licences of the whole
    library, empty for any. source_licences: source id -> allowed licences, for sources with their
    own list; a skill must satisfy both lists. suppressed_rules: ids of rules whose findings do not
    count.
    """

    highest_level: int
    licences: frozenset[str]
    trusted_sources: frozenset[str]
    withheld_sources: frozenset[str]
    source_licences: Mapping[str, frozenset[str]] = field(default_factory=dict)
    judge: str = ""
    suppressed_rules: frozenset[str] = frozenset()
    reviews: Reviews = NO_REVIEWS

    @classmethod
    def from_settings(
        cls, settings: PolicySettings, judge: str = "", reviews: Reviews = NO_REVIEWS
    ) -> SkillPolicy:
        """Create the policy of the settings and of these reviews."""
        by_trust: dict[str, set[str]] = {"send": set(), "withhold": set()}
        for source, trust in settings.sources.items():
            by_trust[trust].add(source)
        return cls(
            settings.highest_level,
            licences.normalise_allowed(settings.licences),
            frozenset(by_trust["send"]),
            frozenset(by_trust["withhold"]),
            judge=judge,
            suppressed_rules=frozenset(settings.suppressed_rules),
            reviews=reviews,
        )

    def with_source_licences(self, allowed: Mapping[str, Sequence[str]]) -> SkillPolicy:
        """Return the policy with allowed licences by source id; an empty list allows any."""
        own = {
            source: licences.normalise_allowed(names) for source, names in allowed.items() if names
        }
        return replace(self, source_licences=own)

    @property
    def allows_all(self) -> bool:
        """Whether the policy withholds nothing, so that no lookup is needed."""
        return self.highest_level >= 3 and not (
            self.licences or self.withheld_sources or self.source_licences or self.reviews.by_skill
        )

    def raise_level(self, level: int, judgements: Iterable[Judgement]) -> int:
        """Return the scanner's level, or the level of the judgement that counts, if higher."""
        judgement = find_judgement(judgements, self.judge)
        return max(level, judgement.level) if judgement else level

    def find_violation(
        self, source: str, level: int, licence: str, judgements: Iterable[Judgement] = ()
    ) -> PolicyViolation | None:
        """Return why a skill of this source, scanner level and licence is withheld, None if sent.

        Decisions of people are not considered. The source is checked first, then the level, then
        the licence.
        """
        raised = self.raise_level(level, judgements)
        return self._find(source, raised, licence, self.judge if raised > level else "")

    @property
    def has_exceptions(self) -> bool:
        """Whether `needs_record` may be true for some skill."""
        return bool(self.reviews.by_skill or self.suppressed_rules)

    def needs_record(
        self, skill_id: str, violation: PolicyViolation | None, content_hash: str = ""
    ) -> bool:
        """Return whether `find_record_violation` may differ from `find_violation` for a skill.

        A decision of a person or a suppressed rule may change the result. violation: result of
        `find_violation`. content_hash: "" if unknown.
        """
        if skill_id in self.reviews.by_skill or content_hash in self.reviews.confirmed:
            return True
        return bool(self.suppressed_rules) and violation is not None and violation.kind == "safety"

    def count_findings(
        self,
        skill_id: str,
        content_hash: str,
        record: SkillRecord,
        judgements: Iterable[Judgement] = (),
    ) -> CountedFindings:
        """Return the findings of a content and of its judgement, and the level of those that count.

        record: has the findings of the current scanner.
        """
        judged = with_judgement(record, find_judgement(judgements, self.judge))
        reviews = self.reviews.get(skill_id, content_hash)
        return count_findings(judged.safety, judged.safety_level, reviews, self.suppressed_rules)

    def settle(
        self,
        skill_id: str,
        content_hash: str,
        record: SkillRecord,
        judgements: Iterable[Judgement] = (),
    ) -> SkillRecord:
        """Return the record to send: with only the findings that count, and their level."""
        counted = self.count_findings(skill_id, content_hash, record, judgements)
        if counted.findings == record.safety and not counted.exempt:
            return record
        return replace(record, safety=counted.counted, safety_level=counted.level)

    def find_record_violation(
        self,
        skill_id: str,
        content_hash: str,
        record: SkillRecord,
        judgements: Iterable[Judgement] = (),
    ) -> PolicyViolation | None:
        """Return why a content of a skill is withheld, None if it is sent.

        A content that a person confirmed as harmful is withheld regardless of the settings. record:
        has the findings of the current scanner.
        """
        source = get_source_id(skill_id)
        if content_hash in self.reviews.confirmed and source not in self.withheld_sources:
            return PolicyViolation("safety", CONFIRMED_REASON)
        counted = self.count_findings(skill_id, content_hash, record, judgements)
        judgement = find_judgement(judgements, self.judge)
        is_raised = (
            judgement is not None
            and judgement.to_finding() in counted.counted
            and judgement.level == counted.level > record.safety_level
        )
        return self._find(source, counted.level, record.licence, self.judge if is_raised else "")

    def _find(self, source: str, level: int, licence: str, judge: str) -> PolicyViolation | None:
        """judge: model whose judgement gave the level, "" if the scanner gave it."""
        if source in self.withheld_sources:
            return PolicyViolation(
                "source", "nothing of its source is sent", 'its source as "send" in policy.sources'
            )
        if source in self.trusted_sources:
            return None
        if level > self.highest_level:
            judged = f" as judged by {judge}" if judge else ""
            return PolicyViolation(
                "safety",
                f"{LEVEL_REASON} {level}{judged}, above policy.highest_level {self.highest_level}",
                f"policy.highest_level = {level}",
            )
        by_setting = {
            "its licence in policy.licences": self.licences,
            "its licence in the licence list of its source": self.source_licences.get(source),
        }
        for setting, allowed in by_setting.items():
            if allowed and not licences.is_licence_allowed(licence, allowed):
                return PolicyViolation("licence", _not_allowed(licence), setting)
        return None


CONFIRMED_REASON = "a person confirmed that it is harmful"
LEVEL_REASON = "safety level"
"""Start of the reason if a skill is withheld because of findings."""


def check_rule_ids(rules: Iterable[str], setting: str) -> None:
    """Raise UsageError for an unknown rule id; the message suggests similar ids.

    setting: origin of the ids, for the message.
    """
    known = list_rule_ids()
    for rule in rules:
        if rule not in known:
            near = get_close_matches(rule, known, 3, 0.5)
            hint = (
                f"did you mean {', '.join(near)}?" if near else f"the rules are {', '.join(known)}"
            )
            raise UsageError(f"{setting}: no rule {rule!r}; {hint}")


def is_reviewed_source(settings: PolicySettings, skill_id: str) -> bool:
    """Return whether updates of a skill wait for a person before they are published."""
    return any(
        fnmatchcase(skill_id if ":" in pattern else get_source_id(skill_id), pattern)
        for pattern in settings.review
    )


def _not_allowed(licence: str) -> str:
    plain = licence.strip()
    return f"its licence is not allowed: {plain}" if plain else "it states no licence"
