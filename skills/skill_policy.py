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
from skills.record import SkillRecord
from skills.review import (
    NO_REVIEWS,
    CountedFindings,
    Reviews,
    count_findings,
    list_rule_ids,
)

ViolationKind = Literal["safety", "licence", "source"]


class PolicyViolation(NamedTuple):
    """Why a skill is withheld. The reason may quote the skill's licence, which is untrusted.

    setting: what would send it, without the skill's own words; "" if that is not known.
    """

    kind: ViolationKind
    reason: str
    setting: str = ""


@dataclass(frozen=True, slots=True)
class SkillPolicy:
    """The policy of the settings, of single sources, and of what people decided about skills.

    Everything that sends skills calls `find_record_violation` for a revision that it has read. With
    what the catalog knows of one, `find_violation` says the same, unless `needs_record`. judge: the
    model whose judgements count, "" for none. licences: allowed in the whole library, empty for
    any. source_licences: by source id, the licences allowed for sources with their own list; a
    skill must satisfy both. suppressed_rules: ids of rules whose findings do not count.
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
        """The policy of the settings and of these reviews."""
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
        """The policy with allowed licences by source id; an empty list allows any."""
        own = {
            source: licences.normalise_allowed(names) for source, names in allowed.items() if names
        }
        return replace(self, source_licences=own)

    @property
    def allows_all(self) -> bool:
        """Whether the policy can withhold nothing, so that no lookup is needed."""
        return self.highest_level >= 3 and not (
            self.licences or self.withheld_sources or self.source_licences or self.reviews.by_skill
        )

    def raise_level(self, level: int, judgements: Iterable[Judgement]) -> int:
        """The scanner's level, or that of the judgement that counts, if it is higher."""
        judgement = find_judgement(judgements, self.judge)
        return max(level, judgement.level) if judgement else level

    def find_violation(
        self, source: str, level: int, licence: str, judgements: Iterable[Judgement] = ()
    ) -> PolicyViolation | None:
        """Why a skill of this source, scanner level and licence is withheld; None if it is not.

        Takes no account of what people decided. The source is checked first, then the level, then
        the licence.
        """
        raised = self.raise_level(level, judgements)
        return self._find(source, raised, licence, self.judge if raised > level else "")

    @property
    def has_exceptions(self) -> bool:
        """Whether `needs_record` may be true of a skill."""
        return bool(self.reviews.by_skill or self.suppressed_rules)

    def needs_record(
        self, skill_id: str, violation: PolicyViolation | None, content_hash: str = ""
    ) -> bool:
        """Whether a person or a suppressed rule may change what `find_violation` found, so that
        `find_record_violation` has to be asked. content_hash: "" if it is not known."""
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
        """The findings of a content and of its judgement, with the level of those that count.

        record: with findings of the current scanner.
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
        """The record as it is sent: with the findings that count, and their level."""
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
        """Why a content of a skill is withheld; None if it is not.

        What a person confirmed as harmful is withheld whatever the settings send. record: with
        findings of the current scanner.
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
        """judge: the model whose judgement made the level, "" if findings of the scanner did."""
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
                f"{LEVEL_REASON} {level}{judged}, sent up to {self.highest_level}",
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
"""How the reason begins where findings withhold a skill."""


def check_rule_ids(rules: Iterable[str], setting: str) -> None:
    """Raise UsageError for ids of rules that do not exist, which names those that are near.

    setting: where the ids are from, for the message.
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
    """Whether updates of a skill wait for a person before they are published."""
    return any(
        fnmatchcase(skill_id if ":" in pattern else get_source_id(skill_id), pattern)
        for pattern in settings.review
    )


def get_source_id(skill_id: str) -> str:
    """The id of a skill's source."""
    return skill_id.partition(":")[0]


def _not_allowed(licence: str) -> str:
    plain = licence.strip()
    return f"its licence is not allowed: {plain}" if plain else "it states no licence"
