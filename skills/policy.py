"""Which skills may be sent: by the scanner's level, by licence, and by where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from config.settings import PolicySettings

UNKNOWN_LICENCE = "unknown"
"""In the list of allowed licences: skills that state none."""

Kind = Literal["safety", "licence", "source"]


class Refusal(NamedTuple):
    """Why a skill is withheld. The reason may quote the skill's licence, which is untrusted."""

    kind: Kind
    reason: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings as rules. Licences are compared whole, in any case."""

    highest_level: int
    licences: frozenset[str]
    trusted: frozenset[str]
    withheld: frozenset[str]

    @classmethod
    def of(cls, settings: PolicySettings) -> Policy:
        """The rules that the settings make."""
        by_trust: dict[str, set[str]] = {"send": set(), "withhold": set()}
        for source, trust in settings.sources.items():
            by_trust[trust].add(source)
        return cls(
            settings.highest_level,
            frozenset(_plain(licence) for licence in settings.licences),
            frozenset(by_trust["send"]),
            frozenset(by_trust["withhold"]),
        )

    @property
    def sends_all(self) -> bool:
        """Whether nothing can be withheld, so that nothing need be looked up."""
        return self.highest_level >= 3 and not self.licences and not self.withheld

    def refusal(self, source: str, level: int, licence: str) -> Refusal | None:
        """Why a skill of this source, scanner level and licence is withheld; None when it is not.

        A source decides before licence and level, and safety is named before a licence.
        """
        if source in self.withheld:
            return Refusal("source", "nothing of its source is sent")
        if source in self.trusted:
            return None
        if level > self.highest_level:
            return Refusal("safety", f"safety level {level}, sent up to {self.highest_level}")
        if not self.licences:
            return None
        if not licence.strip():
            allowed = UNKNOWN_LICENCE in self.licences
            return None if allowed else Refusal("licence", "it states no licence")
        if _plain(licence) in self.licences:
            return None
        return Refusal("licence", f"its licence is not allowed: {licence}")


def _plain(licence: str) -> str:
    return " ".join(licence.split()).casefold()
