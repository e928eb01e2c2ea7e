"""Which skill stands in for which in the cases of set compatibility."""

from __future__ import annotations

import math

import pytest

from graph.records import LinkFeatures
from search.text.query_understanding import understand
from tasks.query.ranking import Ranking, Selection
from tests.bench.replay_compatibility import Form, choose_cases, get_kind, judge, summarise
from tests.bench.set_compatibility import Judgement, generate_cases, is_clash_seen


def skill(name: str, *terms: int) -> LinkFeatures:
    weights = dict.fromkeys(terms, 1 / math.sqrt(len(terms)))
    return LinkFeatures(f"lib:{name}", "lib", name, name, {}, weights, ())


LIBRARY = {
    one.skill_id: one
    for one in (
        skill("tide-reader", 1, 2, 3, 4),
        skill("tide-writer", 1, 2, 3, 5),
        skill("moon-watch", 1, 2, 6, 7),
        skill("star-chart", 8, 9),
        skill("tide-reader-2", 1, 2, 3, 4),
    )
}


def task(*needed: str) -> dict[str, object]:
    return {"task_id": "t", "instruction": "Sail.", "gt_skill_ids": [f"lib:{n}" for n in needed]}


def test_a_needed_skill_is_exchanged_for_the_most_similar_one() -> None:
    cases = list(generate_cases([task("tide-reader", "star-chart")], LIBRARY))
    assert [(case.exchanged, case.replacement, case.kind) for case in cases] == [
        ("lib:tide-reader", "lib:tide-reader-2", "alternative")
    ]
    assert cases[0].candidates == ("lib:tide-reader-2", "lib:star-chart")
    assert cases[0].cosine == 1.0


def test_what_the_task_needs_is_no_replacement() -> None:
    cases = list(generate_cases([task("tide-reader", "tide-reader-2")], LIBRARY))
    assert {case.replacement for case in cases} == {"lib:tide-writer"}
    assert {case.kind for case in cases} == {"sibling"}


def test_skills_that_are_not_in_the_library_are_left_out() -> None:
    assert list(generate_cases([task("missing", "star-chart")], LIBRARY)) == []


def test_a_clash_is_seen_by_rejection_or_conflict() -> None:
    [case] = generate_cases([task("tide-reader")], LIBRARY)
    assert is_clash_seen(case, Judgement(frozenset({"lib:tide-reader-2"})))
    pair = ("lib:star-chart", "lib:tide-reader-2")
    assert is_clash_seen(case, Judgement(frozenset(), frozenset({pair})))
    assert not is_clash_seen(case, Judgement(frozenset({"lib:star-chart"})))


def selected(*needed: str, useful: str = "", conflict: tuple[str, str] | None = None) -> Ranking:
    def named(*names: str) -> tuple[str, ...]:
        return tuple(f"lib:{name}" for name in names)

    more = dict.fromkeys(named(useful), 0.5) if useful else {}
    selection = Selection(named(*needed), more, named(*needed), {}, complete=True)
    pairs = ((named(*conflict)[0], named(*conflict)[1]),) if conflict else ()
    return Ranking(understand("Sail."), None, conflicts=pairs, selection=selection)


def test_only_tasks_that_need_several_skills_make_cases_to_be_asked() -> None:
    tasks = [task("tide-reader"), task("tide-reader", "star-chart")]
    [case] = choose_cases(tasks, LIBRARY)
    assert get_kind(case, LIBRARY) == "copy"
    assert get_kind(case, LIBRARY | {case.replacement: skill("moon-reader", 6)}) == "copy"


def test_a_sibling_is_no_copy() -> None:
    [case] = choose_cases([task("tide-reader-2", "tide-reader", "star-chart")], LIBRARY)[:1]
    assert get_kind(case, LIBRARY) == "sibling"


@pytest.mark.parametrize(
    ("form", "ranking", "expected"),
    [
        ("candidates", selected("star-chart"), (True, True, False, 0.0, 1.0)),
        ("candidates", selected("tide-reader-2"), (False, False, False, 1.0, 0.0)),
        (
            "candidates",
            selected("star-chart", useful="tide-reader-2"),
            (True, False, False, 0.0, 1.0),
        ),
        (
            "with_both",
            selected("star-chart", "tide-reader"),
            (True, True, True, 0.0, 1.0),
        ),
        (
            "with_both",
            selected("star-chart", "tide-reader-2", conflict=("tide-reader-2", "star-chart")),
            (True, True, False, 0.5, 0.5),
        ),
    ],
)
def test_what_the_stage_said_is_judged(
    form: Form, ranking: Ranking, expected: tuple[object, ...]
) -> None:
    [case] = choose_cases([task("tide-reader", "star-chart")], LIBRARY)
    found = judge(case, form, ranking)
    assert found.answered
    assert (found.seen, found.left_out, found.preferred, found.alarms, found.kept) == expected


def test_without_an_answer_nothing_is_seen() -> None:
    [case] = choose_cases([task("tide-reader", "star-chart")], LIBRARY)
    found = judge(case, "candidates", Ranking(understand("Sail."), None))
    assert (found.answered, found.seen, found.left_out) == (False, False, False)


def test_copies_are_no_part_of_the_whole() -> None:
    names = ("answered", "seen", "left out", "preferred", "alarms", "kept")
    rows = [
        {"form": "candidates", "kind": kind} | dict.fromkeys(names, share)
        for kind, share in (("sibling", 1.0), ("alternative", 0.0), ("copy", 1.0))
    ]
    found = summarise(rows)
    assert found["candidates all"]["seen"] == 0.5
    assert found["candidates all"]["cases"] == 2
    assert found["candidates copy"]["cases"] == 1
