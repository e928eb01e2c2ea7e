"""Decides which skills may be sent, by scanner level, licence and source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from config.settings import PolicySettings
from skills import licences
from skills.judgement import Judgement, find_judgement
from skills.record import SkillRecord

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
    """The policy of the settings and of single sources.

    Everything that sends skills calls `find_violation`, or `find_record_violation` for a revision
    that it has read. judge: the model whose judgements count, "" for none. licences: allowed in the
    whole library, empty for any. source_licences: by source id, the licences allowed for sources
    with their own list; a skill must satisfy both.
    """

    highest_level: int
    licences: frozenset[str]
    trusted_sources: frozenset[str]
    withheld_sources: frozenset[str]
    source_licences: Mapping[str, frozenset[str]] = field(default_factory=dict)
    judge: str = ""

    @classmethod
    def from_settings(cls, settings: PolicySettings, judge: str = "") -> SkillPolicy:
        """The policy of the settings."""
        by_trust: dict[str, set[str]] = {"send": set(), "withhold": set()}
        for source, trust in settings.sources.items():
            by_trust[trust].add(source)
        return cls(
            settings.highest_level,
            licences.normalise_allowed(settings.licences),
            frozenset(by_trust["send"]),
            frozenset(by_trust["withhold"]),
            judge=judge,
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
            self.licences or self.withheld_sources or self.source_licences
        )

    def raise_level(self, level: int, judgements: Iterable[Judgement]) -> int:
        """The scanner's level, or that of the judgement that counts, if it is higher."""
        judgement = find_judgement(judgements, self.judge)
        return max(level, judgement.level) if judgement else level

    def find_violation(
        self, source: str, level: int, licence: str, judgements: Iterable[Judgement] = ()
    ) -> PolicyViolation | None:
        """Why a skill of this source, scanner level and licence is withheld; None if it is not.

        The source is checked first, then the level, then the licence.
        """
        if source in self.withheld_sources:
            return PolicyViolation(
                "source", "nothing of its source is sent", 'its source as "send" in policy.sources'
            )
        if source in self.trusted_sources:
            return None
        raised = self.raise_level(level, judgements)
        if raised > self.highest_level:
            judged = f" as judged by {self.judge}" if raised > level else ""
            return PolicyViolation(
                "safety",
                f"safety level {raised}{judged}, sent up to {self.highest_level}",
                f"policy.highest_level = {raised}",
            )
        by_setting = {
            "its licence in policy.licences": self.licences,
            "its licence in the licence list of its source": self.source_licences.get(source),
        }
        for setting, allowed in by_setting.items():
            if allowed and not licences.is_licence_allowed(licence, allowed):
                return PolicyViolation("licence", _not_allowed(licence), setting)
        return None

    def find_record_violation(
        self, skill_id: str, record: SkillRecord, judgements: Iterable[Judgement] = ()
    ) -> PolicyViolation | None:
        """Why a skill is withheld; the record must have findings of the current scanner."""
        return self.find_violation(
            get_source_id(skill_id), record.safety_level, record.licence, judgements
        )


def get_source_id(skill_id: str) -> str:
    """The id of a skill's source."""
    return skill_id.partition(":")[0]


def _not_allowed(licence: str) -> str:
    plain = licence.strip()
    return f"its licence is not allowed: {plain}" if plain else "it states no licence"
