"""Descriptions of the scanner's rules: level, reason and remedy, from `data/rules.toml`.

What the rules find is described in the other files of `data`, and in modules of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from skills.record import SafetyFinding
from skills.scanner.data_files import read_data_file


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as `data/rules.toml` describes it."""

    id: str
    kind: str
    level: int
    reason: str
    remedy: str


@cache
def list_rules() -> Mapping[str, Rule]:
    """Return all rules by id."""
    plain = read_data_file("rules.toml")
    return {
        name: Rule(name, kind, *fields)
        for kind, rules in plain.items()
        for name, fields in rules.items()
    }


@cache
def _rules_by_reason() -> Mapping[str, Rule]:
    return {rule.reason: rule for rule in list_rules().values()}


def find_rule(finding: SafetyFinding) -> Rule | None:
    """Return the rule of a finding; None for a finding of an older scanner or a judgement."""
    return _rules_by_reason().get(finding.reason.partition(": ")[0])


def get_quote(finding: SafetyFinding) -> str:
    """Return the text of the skill that a finding quotes, "" if it quotes none."""
    return finding.reason.partition(": ")[2]
