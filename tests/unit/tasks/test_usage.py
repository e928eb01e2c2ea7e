"""Usage of days: equal to a naive count, in whatever order and however often rows come."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skills.bundle.rejection import RejectionReason
from skills.outcomes.model import (
    SECONDS_PER_DAY,
    AnsweredQuery,
    AnsweredSkill,
    LostSkill,
    Outcome,
    OutcomeKind,
    Reporter,
)
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.outcomes.usage import model
from tasks.outcomes.usage.codec import dump_usage, load_usage
from tasks.outcomes.usage.forget import forget_owner
from tasks.outcomes.usage.model import (
    MAX_UNANSWERED,
    OTHERS,
    GroupUsage,
    Row,
    Usage,
    UsageCollector,
    count_by_name,
    merge_usage,
    without_owner,
)
from tasks.outcomes.usage.roll_up import roll_up_days

DAY = 20_454
OWNERS = ("", "ann", "bob")
SKILLS = ("lib:a", "lib:b", "other:c")


@st.composite
def answers(draw: st.DrawFn) -> list[AnsweredQuery]:
    """Queries of three days, each with another id."""
    found = []
    for number in range(draw(st.integers(1, 8))):
        chosen = draw(st.lists(st.sampled_from(SKILLS), unique=True))
        found.append(
            AnsweredQuery(
                f"q{number}",
                draw(st.sampled_from(OWNERS)),
                "",
                "a task",
                (DAY + draw(st.integers(0, 2)) + 0.5) * SECONDS_PER_DAY,
                bool(chosen),
                skills=tuple(
                    AnsweredSkill(
                        skill_id, 1, place, sent=draw(st.booleans()), tokens=draw(st.integers(0, 9))
                    )
                    for place, skill_id in enumerate(chosen, 1)
                ),
                lost=draw(st.sampled_from([(), (LostSkill("lib:a", "lib:b"),)])),
                is_use=draw(st.booleans()),
            )
        )
    return found


@st.composite
def outcomes(draw: st.DrawFn, queries: Sequence[AnsweredQuery]) -> list[Outcome]:
    """Outcomes of these queries by their owners or the user of this machine."""
    found = []
    for number in range(draw(st.integers(0, 12))):
        query = draw(st.sampled_from(queries))
        kind = draw(st.sampled_from(OutcomeKind))
        found.append(
            Outcome(
                f"k{number}",
                query.query_id,
                "" if kind is OutcomeKind.MISSING else draw(st.sampled_from(SKILLS)),
                kind,
                draw(st.sampled_from(Reporter)),
                draw(st.sampled_from(["", query.owner])),
                query.answered + draw(st.integers(0, 9)) * SECONDS_PER_DAY,
                draw(st.sampled_from(RejectionReason)).value
                if kind is OutcomeKind.REJECTED
                else "",
            )
        )
    return found


def is_unanswered(query: AnsweredQuery, reported: Iterable[Outcome]) -> bool:
    kinds = [one.kind for one in reported]
    if {OutcomeKind.USED, OutcomeKind.HELPED, OutcomeKind.SUPERSEDED}.intersection(kinds):
        return False
    return not query.hit or bool(kinds)


def count_naively(queries: Iterable[AnsweredQuery], reported: Iterable[Outcome]) -> Counter[object]:
    """Every count by day, asker, reporter, skill and counter."""
    found: Counter[object] = Counter()
    by_query = {query.query_id: query for query in queries}
    reported = list(reported)
    for query in (one for one in by_query.values() if one.is_use):
        where = (query.day, query.owner, query.owner)
        found[(*where, "queries")] += 1
        found[(*where, "hits" if query.hit else "no_hits")] += 1
        if is_unanswered(query, [one for one in reported if one.query_id == query.query_id]):
            found[(*where, "unanswered")] += 1
        for skill in query.skills:
            found[(*where, skill.skill_id, "chosen")] += 1
            if skill.sent:
                found[(*where, skill.skill_id, "sent")] += 1
                found[(*where, skill.skill_id, "tokens")] += skill.tokens
        for lost in query.lost:
            found[(*where, lost.skill_id, lost.to)] += 1
    for one in reported:
        query = by_query[one.query_id]
        where = (query.day, query.owner, one.owner)
        found[(*where, f"{one.kind.value}/{one.by.value}")] += 1
        if one.kind is OutcomeKind.MISSING:
            found[(*where, "missing")] += 1
            continue
        found[(*where, one.skill_id, one.kind.value)] += 1
        if one.reason:
            found[(*where, one.skill_id, f"rejected_{one.reason}")] += 1
    return Counter({name: count for name, count in found.items() if count})


def flatten(days: Iterable[Usage]) -> Counter[object]:
    """The same of rolled-up days."""
    found: Counter[object] = Counter()
    for usage in days:
        for key, group in usage.groups.items():
            for name, count in group.totals.items():
                found[(usage.first, *key, name)] += count
            for skill_id, row in group.skills.items():
                for name, count in count_by_name(row).items():
                    found[(usage.first, *key, skill_id, name)] += count
            for pair, count in group.lost.items():
                found[(usage.first, *key, *pair)] += count
    return Counter({name: count for name, count in found.items() if count})


def read_days(store: SqliteOutcomeStore) -> list[Usage]:
    return [load_usage(data) for data in store.get_days(0, DAY + 99).values()]


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_the_roll_up_equals_a_naive_count(data: st.DataObject) -> None:
    queries = data.draw(answers())
    reported = data.draw(outcomes(queries))
    store = SqliteOutcomeStore(":memory:")
    store.add_answers(queries[:1])
    # Outcomes come in any order and twice, with roll-ups in between; so do answers.
    everything: list[AnsweredQuery | Outcome] = [*queries, *queries, *reported, *reported]
    later = data.draw(st.permutations(everything))
    waiting: list[Outcome] = []
    for one in later:
        if isinstance(one, AnsweredQuery):
            store.add_answers([one])
        elif one.query_id in store.get_answers([one.query_id]):
            store.add_outcomes([one])
        else:
            waiting.append(one)
        if data.draw(st.booleans()):
            roll_up_days(store, lambda: None)
    store.add_outcomes(waiting)
    roll_up_days(store, lambda: None)
    assert flatten(read_days(store)) == count_naively(queries, reported)

    owner = data.draw(st.sampled_from(OWNERS))
    if data.draw(st.booleans()):
        store.prune_days(DAY + 1)
    forget_owner(store, owner)
    roll_up_days(store, lambda: None)
    kept = [query for query in queries if query.owner != owner]
    ids = {query.query_id for query in kept}
    rest = [one for one in reported if one.query_id in ids and one.owner != owner]
    found, expected = flatten(read_days(store)), count_naively(kept, rest)
    # Whether a query of a pruned day was unanswered is no longer known once outcomes are withdrawn.
    pruned = {(DAY, one.owner, one.owner, "unanswered") for one in queries}
    for name in pruned:
        del found[name], expected[name]
    assert found == expected
    store.close()


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_a_usage_is_read_as_it_was_written(data: st.DataObject) -> None:
    usage = collect(data.draw(answers()), [])
    assert load_usage(dump_usage(usage)) == usage
    shuffled = Usage(
        usage.first,
        usage.last,
        dict(reversed(usage.groups.items())),
        dict(reversed(usage.unanswered.items())),
    )
    assert dump_usage(shuffled) == dump_usage(usage)


def collect(
    queries: Iterable[AnsweredQuery], reported: Iterable[Outcome], max_cells: int = 1_000
) -> Usage:
    reported = list(reported)
    collector = UsageCollector(DAY, max_cells)
    for query in sorted(queries, key=lambda one: one.query_id):
        collector.add(query, [one for one in reported if one.query_id == query.query_id])
    return collector.finish()


def ask(number: int, owner: str, skills: Sequence[str]) -> AnsweredQuery:
    sent = tuple(AnsweredSkill(skill_id, 1, 1, tokens=10) for skill_id in skills)
    return AnsweredQuery(f"q{number:06}", owner, "", "", DAY * 86_400.0, bool(skills), skills=sent)


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_a_sum_of_days_has_the_counts_of_all(data: st.DataObject) -> None:
    queries = data.draw(answers())
    reported = data.draw(outcomes(queries))
    same_day = [replace(query, answered=DAY * 86_400.0) for query in queries]
    parts = [
        collect([query for place, query in enumerate(same_day) if place % 2 == part], reported)
        for part in (0, 1)
    ]
    whole = collect(same_day, reported)
    merged = merge_usage(parts)
    assert flatten([merged]) == flatten([whole])
    assert merged.unanswered == {}
    assert (merged.first, merged.last) == (DAY, DAY)


@pytest.mark.parametrize("interval", [5_000, 50])
def test_more_counts_than_a_day_keeps_are_those_of_the_smallest_owners(
    monkeypatch: pytest.MonkeyPatch, interval: int
) -> None:
    monkeypatch.setattr(model, "_FOLD_INTERVAL", interval)
    skills = [f"lib:{number}" for number in range(40)]
    generator = random.Random(7)
    queries = [
        ask(number, f"owner-{number % 20}", generator.sample(skills, 1 + number % 20 // 2))
        for number in range(1_000)
    ]
    usage = collect(queries, [], max_cells=200)
    assert sum(len(group.skills) for group in usage.groups.values()) <= 200
    assert (OTHERS, OTHERS) in usage.groups
    exact = collect(queries, [], max_cells=10_000)
    assert merged_rows(usage) == merged_rows(exact)
    for key, group in exact.groups.items():
        assert usage.groups[key].totals == group.totals
        assert usage.groups[key].skills in ({}, group.skills)
    apart = [key for key, group in usage.groups.items() if group.skills]
    assert ("owner-0", "owner-0") not in apart
    assert len(apart) > 1


def merged_rows(usage: Usage) -> dict[str, Row]:
    whole = GroupUsage()
    for group in usage.groups.values():
        whole.add_skills(group)
    return dict(sorted(whole.skills.items()))


def test_one_owner_keeps_all_its_skills() -> None:
    usage = collect([ask(0, "", [f"lib:{number}" for number in range(50)])], [], max_cells=10)
    assert len(usage.groups["", ""].skills) == 50


def test_unanswered_queries_are_a_sample_that_depends_on_no_order() -> None:
    queries = [ask(number, OWNERS[number % 3], []) for number in range(MAX_UNANSWERED + 500)]
    usage = collect(queries, [])
    kept = {query_id for ids in usage.unanswered.values() for query_id in ids}
    assert len(kept) == MAX_UNANSWERED
    assert sum(group.totals["unanswered"] for group in usage.groups.values()) == len(queries)
    fewer = [query for query in queries if query.query_id in kept]
    assert collect(fewer, []).unanswered == usage.unanswered
    assert sum(query_id < f"q{1_000:06}" for query_id in kept) == pytest.approx(800, abs=80)


UNANSWERED = [
    (False, [], True),
    (True, [], False),
    (True, [OutcomeKind.REJECTED], True),
    (True, [OutcomeKind.FAILED, OutcomeKind.HELPED], False),
    (True, [OutcomeKind.MISSING], True),
    (False, [OutcomeKind.HELPED], False),
    (True, [OutcomeKind.REJECTED, OutcomeKind.SUPERSEDED], False),
]


@pytest.mark.parametrize(("hit", "kinds", "unanswered"), UNANSWERED)
def test_unanswered_queries(hit: bool, kinds: list[OutcomeKind], unanswered: bool) -> None:
    query = replace(ask(1, "", []), hit=hit)
    reported = [
        Outcome(
            *(f"k{place}", query.query_id, "lib:a", kind, Reporter.AGENT, "", query.answered),
            RejectionReason.REDUNDANT.value if kind is OutcomeKind.REJECTED else "",
        )
        for place, kind in enumerate(kinds)
    ]
    (group,) = collect([query], reported).groups.values()
    assert group.totals["unanswered"] == unanswered


def test_an_owner_is_taken_out_of_a_usage() -> None:
    usage = collect([ask(0, "ann", ["lib:a"]), ask(1, "bob", ["lib:a"]), ask(2, "bob", [])], [])
    kept = without_owner(usage, "bob")
    assert list(kept.groups) == [("ann", "ann")]
    assert usage.unanswered == {"bob": ("q000002",)}
    assert kept.unanswered == {}
