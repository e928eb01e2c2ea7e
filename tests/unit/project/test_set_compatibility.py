"""Which skill stands in for which in the cases of set compatibility."""

from __future__ import annotations

import math

from graph.records import LinkFeatures
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
