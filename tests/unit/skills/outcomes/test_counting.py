"""Counting: caps by owner and day, owners that must agree, contributors that do not count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skills.outcomes.counting import NOTHING, CountedTasks, CountingRules, Tally
from skills.outcomes.pair_evidence import PairEvidence, SkillTotals, weigh_pair
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


@given(REPORTS, st.sets(st.integers(0, 9)), st.integers(1, 3), st.integers(1, 3))
def test_tasks_without_some_reports_are_those_of_the_others(
    found: list[tuple[TaskReport, float]], left_out: set[int], least: int, daily: int
) -> None:
    contributors = {"lib": frozenset({"team"})}
    for rules in (
        CountingRules(frozenset({""}), least, daily),
        CountingRules(frozenset(), least, daily),
        CountingRules(frozenset(), least, daily, contributors),
    ):
        gone = [one for place, (one, _) in enumerate(found) if place in left_out]
        left = [one for place, one in enumerate(found) if place not in left_out]
        counted = CountedTasks("lib:a", found, rules).count_without(gone)
        assert counted == rules.count(["lib:a"], left).tasks


# -- pairs
def weigh(*reports: TaskReport) -> PairEvidence:
    named = {one: [r for r in reports if one in r.skill_ids] for one in ("lib:a", "lib:b")}
    totals = (
        SkillTotals("lib:a", named["lib:a"], RULES),
        SkillTotals("lib:b", named["lib:b"], RULES),
    )
    shared = [one for one in named["lib:a"] if one in named["lib:b"]]
    return weigh_pair(("lib:a", "lib:b"), totals, shared, RULES)


def test_tasks_in_which_both_helped_are_none_in_which_one_did_alone() -> None:
    a, b = {"lib:a": 1.0}, {"lib:b": 1.0}
    together = [TaskReport(f"q{n}", "x", 0, helped=a | b) for n in range(3)]
    # Of an owner alone, these do not count; with the tasks of the other they would.
    alone = [TaskReport("qa", "y", 0, helped=a), TaskReport("qb", "y", 0, helped=b)]
    failed = [TaskReport(f"f{n}", "", 0, failed=a | b) for n in range(9)]
    pair = weigh(*together, *alone, *failed)
    assert (pair.one_alone, pair.other_alone) == ((0, 0), (0, 0))
    assert not pair.fails_together


def test_limits_of_a_day_do_not_hide_tasks_without_the_other() -> None:
    a, b = {"lib:a": 1.0}, {"lib:b": 1.0}
    both = [TaskReport(f"q{n}{o}", o, 0, helped=a | b) for n in range(3) for o in "xy"]
    alone = [TaskReport(f"r{n}{o}", o, 0, helped=one) for n, one in enumerate((a, b)) for o in "xy"]
    failed = [TaskReport(f"f{n}", "", 0, failed=a | b) for n in range(9)]
    pair = weigh(*both, *alone, *failed)
    assert (pair.one_alone, pair.other_alone) == ((2, 0), (2, 0))


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
    assert 0.25 <= pair.rejection_factor(rejected, helped) <= 1.0
    assert pair.rejection_factor(rejected + 1, helped) <= pair.rejection_factor(rejected, helped)
    assert 0 <= pair.confirmed_share() < 1
