"""Reports about a task: settled where they contradict, a function of the set of outcomes."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from skills.outcomes.model import Outcome, OutcomeKind, Reporter
from skills.outcomes.settle import MAX_SKILLS
from skills.outcomes.task_report import build_reports


def outcome(skill_id: str, kind: OutcomeKind, **more: Any) -> Outcome:
    values: dict[str, Any] = {"by": Reporter.AGENT, "owner": "", "reported": 0.0, "place": 1}
    values |= more
    key = values.pop("key", f"{skill_id}-{kind}-{values['by']}-{values['reported']}")
    return Outcome(key, "q", skill_id, kind, **values)


HELPED, USED, FAILED = OutcomeKind.HELPED, OutcomeKind.USED, OutcomeKind.FAILED
REJECTED, SUPERSEDED = OutcomeKind.REJECTED, OutcomeKind.SUPERSEDED


def test_a_verifier_counts_above_an_agent_whichever_comes_last() -> None:
    said = [
        outcome("a", HELPED, reported=9.0),
        outcome("a", FAILED, by=Reporter.VERIFIER, reported=3.0),
    ]
    for order in permutations(said):
        [report] = build_reports(order)
        assert report.helped == {}
        assert report.failed == report.unhelpful == {"a": 1.0}


def test_of_one_party_the_last_report_counts() -> None:
    said = [outcome("a", HELPED, reported=1.0), outcome("a", FAILED, reported=2.0)]
    for order in permutations(said):
        [report] = build_reports(order)
        assert report.failed == {"a": 0.5}


def test_of_the_outcomes_of_one_event_the_last_counts() -> None:
    said = [outcome("a", FAILED if n == 10 else HELPED, key=f"e-{n}") for n in range(11)]
    [report] = build_reports(said)
    assert report.failed == {"a": 0.5}


@pytest.mark.parametrize(
    ("by", "kind", "weight"),
    [
        (Reporter.AGENT, HELPED, 0.5),
        (Reporter.AGENT, USED, 0.25),
        (Reporter.VERIFIER, HELPED, 1.0),
        (Reporter.PERSON, USED, 0.5),
    ],
)
def test_weights_by_party_and_kind(by: Reporter, kind: OutcomeKind, weight: float) -> None:
    [report] = build_reports([outcome("a", kind, by=by)])
    assert report.helped == {"a": weight}


def test_use_in_a_task_that_failed_is_no_help() -> None:
    [report] = build_reports([outcome("a", USED, task_result="failed")])
    assert (report.helped, report.failed, report.unhelpful) == ({}, {"a": 0.5}, {})


def test_only_what_was_sent_came_along() -> None:
    [report] = build_reports([outcome("a", REJECTED, reason="wrong_step", place=0)])
    assert report.unhelpful == {}


def test_named_skills_are_kept_apart() -> None:
    [report] = build_reports(
        [
            outcome("a", REJECTED, reason="incompatible", other="x"),
            outcome("b", REJECTED, reason="redundant", other="y"),
            outcome("c", SUPERSEDED, other="z"),
        ]
    )
    assert report.incompatible == {("a", "x"): 0.5}
    assert report.same_job == {("b", "y"): 0.5, ("c", "z"): 0.5}
    assert report.skill_ids == {*"abcxyz"}


def test_owners_report_apart_and_missing_is_about_no_skill() -> None:
    reports = build_reports(
        [
            outcome("b", HELPED, owner="two", key="2"),
            outcome("a", HELPED, owner="one", key="1"),
            outcome("", OutcomeKind.MISSING, owner="zero", key="0"),
        ]
    )
    assert [(one.owner, dict(one.helped)) for one in reports] == [
        ("one", {"a": 0.5}),
        ("two", {"b": 0.5}),
    ]


def test_a_report_is_about_so_many_skills_at_most_the_first_of_the_bundle() -> None:
    said = [outcome(f"s{n:02}", HELPED, place=n % 50) for n in range(60)]
    [report] = build_reports(reversed(said))
    assert len(report.helped) == MAX_SKILLS
    assert "s01" in report.helped
    assert "s00" not in report.helped  # not in the bundle
