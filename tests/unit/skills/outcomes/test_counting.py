"""Counting: caps by owner and day, owners that must agree, contributors that do not count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skills.outcomes.counting import NOTHING, CountingRules, Tally
from skills.outcomes.pair_evidence import PairEvidence
from skills.outcomes.task_report import TaskReport

RULES = CountingRules()


def report(number: int, owner: str = "", day: int = 0) -> TaskReport:
    return TaskReport(f"q{number}", owner, day)


def count(*found: tuple[TaskReport, float], rules: CountingRules = RULES) -> Tally:
    return rules.count(["lib:a", "other:b"], found)


def test_a_trusted_owner_counts_alone_and_without_a_cap() -> None:
    for owner in ("", "anonymous"):
        assert count(*((report(n, owner), 0.5) for n in range(9))) == Tally(4.5, 9, 1)
    trusting = CountingRules(trusted=frozenset({"", "ci"}))
    assert count((report(1, "ci"), 1.0), rules=trusting) == Tally(1.0, 1, 1)


def test_two_others_must_agree() -> None:
    assert count(*((report(n, "ci"), 1.0) for n in range(9))) == NOTHING
    assert count((report(1, "ci"), 1.0), (report(2, "team"), 1.0)) == Tally(2.0, 2, 2)
    alone = CountingRules(least_owners=1)
    assert count((report(1, "ci"), 1.0), rules=alone) == Tally(1.0, 1, 1)


def test_of_an_owner_so_many_tasks_of_a_day_count_the_weightiest() -> None:
    flood = [(report(n, "ci"), 1.0 if n > 50 else 0.5) for n in range(60)]
    found = count(*flood, (report(99, "team", 0), 1.0))
    assert found == Tally(4.0, 4, 2)
    days = [(report(n, "ci", day=n), 0.5) for n in range(60)]
    assert count(*days, (report(99, "team"), 1.0)).tasks == 61


def test_a_task_that_two_report_counts_once() -> None:
    assert count((report(1, "ci"), 0.5), (report(1, ""), 1.0)) == Tally(1.0, 1, 2)


def test_contributors_of_either_source_do_not_count_unless_trusted() -> None:
    rules = CountingRules(contributors={"other": frozenset({"ci", ""})})
    assert count((report(1, "ci"), 1.0), (report(2, "team"), 1.0), rules=rules) == NOTHING
    assert count((report(1, ""), 1.0), rules=rules) == Tally(1.0, 1, 1)


REPORTS = st.lists(
    st.tuples(
        st.builds(
            report,
            st.integers(0, 9),
            st.sampled_from(["", "ci", "team"]),
            st.integers(0, 2),
        ),
        st.sampled_from([0.25, 0.5, 1.0]),
    ),
    unique_by=lambda one: (one[0].query_id, one[0].owner),
)


@given(REPORTS, st.randoms())
def test_order_makes_no_difference(found: list[tuple[TaskReport, float]], chance: object) -> None:
    mixed = list(found)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    assert count(*mixed) == count(*found)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_weights_are_bounded_and_monotone(helped: int, extra: int, rejected: int) -> None:
    def weight(together: int, alone: int, against: int) -> float:
        return PairEvidence(
            Tally(together + alone),
            together=Tally(together),
            other_rejected=Tally(against),
        ).companion_weight

    value = weight(helped, extra, rejected)
    assert 0 <= value < 1
    assert weight(helped + 1, extra, rejected) > value
    assert weight(helped, extra, rejected + 1) <= value
    assert weight(helped, extra + 1, rejected) <= value
    pair = PairEvidence(together=Tally(helped))
    assert 0.25 <= pair.loss(rejected, helped) <= 1.0
    assert pair.loss(rejected + 1, helped) <= pair.loss(rejected, helped)
    assert 0 <= pair.gain() < 1
