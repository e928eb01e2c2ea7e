"""Findings of a skill grouped by rule, for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graph.records import SkillState
from skills.scanner import MAX_FINDINGS
from skills.skill_policy import LEVEL_REASON


@dataclass(frozen=True, slots=True)
class RuleFindings:
    """The findings of one rule in a skill.

    rule: "" for findings of older scanners. is_last: whether the skill is withheld
    for these findings alone.
    """

    rule: str
    findings: list[Mapping[str, Any]]
    is_last: bool = False

    @property
    def places(self) -> list[list[Mapping[str, Any]]]:
        """The findings by line."""
        places: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
        for one in self.findings:
            places.setdefault((one["file"], one["line"]), []).append(one)
        return list(places.values())

    @property
    def waiver(self) -> Any:
        """The waiver of the findings; None while a finding is not waived."""
        waivers = [one["waived"] for one in self.findings]
        return waivers[0] if all(waivers) else None

    @property
    def is_suppressed(self) -> bool:
        """Whether a setting suppresses the rule."""
        return all(one["suppressed"] for one in self.findings)


def group_by_rule(revision: Mapping[str, Any], highest_level: int) -> list[RuleFindings]:
    """Group the findings of a revision by rule, most severe first; waived and
    suppressed rules come last.

    highest_level: the highest level that the policy sends.
    """
    findings: Sequence[Mapping[str, Any]] = revision["safety"]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in findings:
        groups.setdefault(one["rule"], []).append(one)
    last = _find_last_rule(revision, highest_level)
    found = [RuleFindings(rule, of_rule, rule == last) for rule, of_rule in groups.items()]

    def rank(one: RuleFindings) -> tuple[bool, int, str]:
        is_exempt = one.waiver is not None or one.is_suppressed
        return is_exempt, -max(finding["level"] for finding in one.findings), one.rule

    return sorted(found, key=rank)


def _find_last_rule(revision: Mapping[str, Any], highest_level: int) -> str | None:
    """Return the only rule whose findings withhold a published revision, or None."""
    findings = revision["safety"]
    # With more findings, the scan may have left out equally severe ones of other rules.
    is_complete = len(findings) < MAX_FINDINGS
    is_withheld = (revision["withheld"] or "").startswith(LEVEL_REASON)
    if not (is_complete and is_withheld and revision["state"] == SkillState.PUBLISHED):
        return None
    rules = {
        one["rule"]
        for one in findings
        if one["level"] > highest_level and not one["waived"] and not one["suppressed"]
    }
    return rules.pop() if len(rules) == 1 else None
