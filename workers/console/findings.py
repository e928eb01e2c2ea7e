"""Findings of a skill by rule, as pages show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RuleFindings:
    """The findings of one rule in a skill. rule: "" for those of older scanners."""

    rule: str
    findings: list[Mapping[str, Any]]

    @property
    def waiver(self) -> Any:
        """Who waived all of them, when and why; None while one counts."""
        waivers = [one["waived"] for one in self.findings]
        return waivers[0] if all(waivers) else None

    @property
    def is_suppressed(self) -> bool:
        """Whether a setting suppresses the rule."""
        return all(one["suppressed"] for one in self.findings)


def group_by_rule(findings: Iterable[Mapping[str, Any]]) -> list[RuleFindings]:
    """Group findings by rule, the gravest first, those that do not count last."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in findings:
        groups.setdefault(one["rule"], []).append(one)
    found = [RuleFindings(rule, of_rule) for rule, of_rule in groups.items()]

    def rank(one: RuleFindings) -> tuple[bool, int, str]:
        is_exempt = one.waiver is not None or one.is_suppressed
        return is_exempt, -max(finding["level"] for finding in one.findings), one.rule

    return sorted(found, key=rank)
