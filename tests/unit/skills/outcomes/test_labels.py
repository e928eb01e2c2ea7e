"""Labels of past tasks: which report of a skill counts, and what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skills.outcomes.labels import SkillLabel, settle_labels
from skills.outcomes.model import SECONDS_PER_DAY, Outcome, OutcomeKind, Reporter
from skills.outcomes.settle import MAX_SKILLS

DAY = 20_000


def outcome(
    kind: OutcomeKind,
    skill_id: str = "lib:a",
    by: Reporter = Reporter.VERIFIER,
    owner: str = "ann",
    at: float = 0.0,
    **more: object,
) -> Outcome:
    key = f"{owner}-{skill_id}-{kind.value}-{by.value}-{at}"
    reported = DAY * SECONDS_PER_DAY + at
    return Outcome(key, "q", skill_id, kind, by, owner, reported, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given_outcome", "label"),
    [
        (outcome(OutcomeKind.HELPED), SkillLabel("lib:a", "ann", DAY, helped=1.0)),
        (outcome(OutcomeKind.USED), SkillLabel("lib:a", "ann", DAY, helped=0.5)),
        (
            outcome(OutcomeKind.HELPED, by=Reporter.AGENT),
            SkillLabel("lib:a", "ann", DAY, helped=0.5),
        ),
        (outcome(OutcomeKind.FAILED), SkillLabel("lib:a", "ann", DAY, rejected=1.0)),
        (outcome(OutcomeKind.REJECTED), SkillLabel("lib:a", "ann", DAY, rejected=1.0)),
    ],
)
def test_what_an_outcome_says(given_outcome: Outcome, label: SkillLabel) -> None:
    assert settle_labels([given_outcome]) == (label,)


def test_no_labels_of_missing_skills_and_of_skills_used_in_a_failed_task() -> None:
    assert settle_labels([outcome(OutcomeKind.MISSING, skill_id="")]) == ()
    assert settle_labels([outcome(OutcomeKind.USED, task_result="failed")]) == ()


def test_the_skill_that_superseded_another_helped() -> None:
    labels = settle_labels([outcome(OutcomeKind.SUPERSEDED, other="lib:b")])
    assert labels == (
        SkillLabel("lib:a", "ann", DAY, rejected=1.0),
        SkillLabel("lib:b", "ann", DAY, helped=1.0),
    )


def test_the_weightier_party_counts_then_the_later_report() -> None:
    agent = outcome(OutcomeKind.HELPED, by=Reporter.AGENT, at=50)
    verifier = outcome(OutcomeKind.FAILED, at=10)
    later = outcome(OutcomeKind.HELPED, at=20)
    assert settle_labels([agent, verifier])[0].rejected == 1.0
    assert settle_labels([agent, verifier, later])[0].helped == 1.0


def test_each_owner_has_a_label_of_its_own_and_so_many_at_most() -> None:
    many = [outcome(OutcomeKind.HELPED, skill_id=f"lib:{n:02}") for n in range(MAX_SKILLS + 5)]
    labels = settle_labels([*many, outcome(OutcomeKind.REJECTED, "lib:00", owner="bob")])
    assert len(labels) == MAX_SKILLS + 1
    assert labels[:2] == (
        SkillLabel("lib:00", "ann", DAY, helped=1.0),
        SkillLabel("lib:00", "bob", DAY, rejected=1.0),
    )


OUTCOMES = st.lists(
    st.builds(
        outcome,
        st.sampled_from([kind for kind in OutcomeKind if kind is not OutcomeKind.MISSING]),
        st.sampled_from(["lib:a", "lib:b"]),
        st.sampled_from(Reporter),
        st.sampled_from(["", "ann"]),
        st.integers(0, 3).map(float),
        other=st.sampled_from(["", "lib:c"]),
    ),
    unique_by=lambda one: one.key,
    max_size=8,
)


@given(OUTCOMES, st.randoms(use_true_random=False))
def test_labels_are_a_function_of_the_set(outcomes: list[Outcome], random: object) -> None:
    shuffled = list(outcomes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert settle_labels(outcomes) == settle_labels(shuffled)
