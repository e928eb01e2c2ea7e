"""Findings by rule, as the pages show them."""

from __future__ import annotations

from typing import Any

import pytest

from workers.console.findings import group_by_rule

WITHHELD = "safety level 2, above policy.highest_level 1"


def finding(rule: str, line: int, level: int = 2, **given: Any) -> dict[str, Any]:
    place = {"rule": rule, "file": "SKILL.md", "line": line, "level": level}
    return place | {"waived": None, "suppressed": False} | given


def revision(*findings: dict[str, Any], **given: Any) -> dict[str, Any]:
    return {"safety": findings, "withheld": WITHHELD, "state": "published"} | given


def last_rules(shown: dict[str, Any], highest_level: int = 1) -> list[str]:
    return [one.rule for one in group_by_rule(shown, highest_level) if one.is_last]


def test_findings_of_a_line_are_one_place() -> None:
    [group] = group_by_rule(revision(finding("a", 3), finding("a", 5), finding("a", 3)), 1)
    assert [[one["line"] for one in place] for place in group.places] == [[3, 3], [5]]


def test_the_last_rule_is_that_of_the_only_findings_that_withhold() -> None:
    waiver = {"by": "ana", "at": "", "reason": ""}
    assert last_rules(revision(finding("a", 3), finding("b", 4))) == []
    assert last_rules(revision(finding("a", 3), finding("b", 4, waived=waiver))) == ["a"]
    assert last_rules(revision(finding("a", 3), finding("b", 4, suppressed=True))) == ["a"]
    assert last_rules(revision(finding("a", 3), finding("b", 4, level=1))) == ["a"]
    assert last_rules(revision(finding("a", 3)), highest_level=2) == []


@pytest.mark.parametrize(
    "given",
    [
        {"withheld": None},
        {"withheld": "a person confirmed that it is harmful"},
        {"state": "held"},
        {"safety": [finding("a", line) for line in range(200)]},
    ],
)
def test_no_waiver_releases_what_more_than_findings_withhold(given: dict[str, Any]) -> None:
    assert last_rules(revision(finding("a", 3)) | given) == []
