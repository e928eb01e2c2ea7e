"""Streams of outcomes from labelled prompts, and plots."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skills.outcomes.model import OutcomeKind
from workers.evaluation.learning_stream import (
    POISON_SHARE,
    POISONED_SKILLS,
    SCENARIOS,
    LabelledTask,
    answer_of,
    choose_poisoned,
    find_successors,
    outcomes_of,
    poison,
    read_tasks,
    split_tasks,
)
from workers.evaluation.line_plot import Line, choose_ticks, draw_lines

TASKS = [
    LabelledTask(f"{skill}-{number}", f"task {number} of {skill}", (f"lib:{skill}",))
    for skill in "abcdefghij"
    for number in range(4)
]
CLEAN = SCENARIOS[0]
RANKED = ["lib:x", "lib:a", "lib:y", "lib:z", "lib:w", "lib:v"]


def test_half_of_the_prompts_of_four_in_five_skills_are_replayed() -> None:
    split = split_tasks(TASKS, seed=1)
    assert (len(split.replayed), len(split.held_out), len(split.new)) == (16, 16, 8)
    parts = [
        {task.task_id for task in part} for part in (split.replayed, split.held_out, split.new)
    ]
    assert len(set.union(*parts)) == len(TASKS)
    replayed = {task.right for task in split.replayed}
    assert replayed == {task.right for task in split.held_out}
    assert not replayed & {task.right for task in split.new}
    assert split == split_tasks(TASKS, seed=1) != split_tasks(TASKS, seed=2)


def test_prompts_of_new_skills_are_not_replayed_for_their_other_skills() -> None:
    both = [
        LabelledTask(f"{task.task_id}-{other}", task.text, (*task.right, f"lib:{other}"))
        for task in TASKS
        for other in "abcdefghij"
        if f"lib:{other}" not in task.right
    ]
    split = split_tasks(TASKS + both, seed=1)
    replayed = {name for task in split.replayed for name in task.right}
    new = {name for task in split.new for name in task.right}
    assert len(new) == 2
    assert not replayed & new
    assert not {name for task in split.held_out for name in task.right} & new
    # 8 x 4 prompts x 2 new skills, and the other way round.
    assert split.count() == len(TASKS + both) - 128


def test_the_only_prompt_of_a_skill_shows_what_is_not_replayed() -> None:
    single = [LabelledTask(f"single-{n}", f"one of {n}", (f"lib:{n}",)) for n in range(10)]
    split = split_tasks(TASKS + single, seed=1)
    replayed = {task.right for task in split.replayed}
    assert replayed == {task.right for task in split.held_out}
    assert {task.task_id for task in single} < {task.task_id for task in split.new}
    assert split.count() == len(TASKS + single)


def test_topics_drift_from_one_half_of_the_skills_to_the_other() -> None:
    stream = split_tasks(TASKS, seed=1, drifts=True).replayed
    first = {task.right for task in stream[:8]}
    assert not first & {task.right for task in stream[8:]}


def test_outcomes_come_from_the_labels() -> None:
    answer = answer_of(TASKS[0], RANKED, 0, 16, CLEAN)
    found = outcomes_of(answer, ("lib:a",), 0.0, np.random.default_rng(0))
    kinds = {one.skill_id: one.kind for one in found}
    assert kinds.pop("lib:a") is OutcomeKind.HELPED
    assert set(kinds) == {"lib:x", "lib:y", "lib:z", "lib:w"}
    assert set(kinds.values()) == {OutcomeKind.REJECTED}
    flipped = outcomes_of(answer, ("lib:a",), 1.0, np.random.default_rng(0))
    assert all(one.kind is not other.kind for one, other in zip(found, flipped, strict=True))


def test_skills_that_are_right_too_helped() -> None:
    row = {"task_id": "t", "instruction": "x", "gt_skill_ids": ["lib:a"], "also": ["lib:x"]}
    [task] = read_tasks([row, {"task_id": "u", "instruction": "y", "gt_skill_ids": []}])
    answer = answer_of(task, RANKED, 0, 16, CLEAN)
    found = outcomes_of(answer, task.right, 0.0, np.random.default_rng(0))
    helped = {one.skill_id for one in found if one.kind is OutcomeKind.HELPED}
    assert helped == {"lib:a", "lib:x"}


def test_a_skill_outside_the_answer_helped_too() -> None:
    answer = answer_of(TASKS[0], ["lib:x"], 0, 16, CLEAN)
    found = outcomes_of(answer, ("lib:a",), 0.0, np.random.default_rng(0))
    assert [(one.skill_id, one.place) for one in found] == [("lib:a", 0), ("lib:x", 1)]


def test_one_owner_poisons_with_its_share_of_the_outcomes() -> None:
    poisoned = choose_poisoned([f"lib:{n}" for n in range(100)], {"lib:3"}, 0)
    assert len(set(poisoned)) == POISONED_SKILLS
    assert "lib:3" not in poisoned
    honest, owners = 0, set()
    reported = []
    for place, task in enumerate(TASKS):
        answer = answer_of(task, RANKED, place, len(TASKS), CLEAN)
        count = len(outcomes_of(answer, task.right, 0.0, np.random.default_rng(0)))
        honest += count
        for _, outcomes in poison(answer, poisoned, place, count):
            reported += outcomes
            owners |= {one.owner for one in outcomes}
    assert len(owners) == 1
    assert len(reported) / (len(reported) + honest) == pytest.approx(POISON_SHARE, abs=0.05)
    assert {one.skill_id for one in reported} == set(poisoned)


def test_successors_are_what_ranks_best_besides() -> None:
    found = find_successors(TASKS, {task.task_id: RANKED for task in TASKS})
    assert found == {f"lib:{skill}": "lib:x" for skill in "acegi"}


def test_a_plot_is_valid_svg_and_the_same_each_time() -> None:
    lines = [
        Line("a < b", ((1.0, 0.2), (4.0, 0.5)), 0),
        Line("flat", ((1.0, 0.2), (4.0, 0.2)), 0, is_dashed=True),
    ]
    image = draw_lines("title", "x", "y", lines)
    root = ElementTree.fromstring(image)
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert image == draw_lines("title", "x", "y", lines)
    with pytest.raises(ValueError, match="no points"):
        draw_lines("title", "x", "y", [])


@given(st.floats(0, 100), st.floats(0.01, 1e6))
def test_ticks_are_few_round_and_inside(low: float, width: float) -> None:
    high = low + width
    ticks = choose_ticks(low, high)
    assert len(ticks) <= 7
    assert all(low - width * 1e-3 <= tick <= high + width * 1e-3 for tick in ticks)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 65, [0, 20, 40, 60]), (0.45, 1.05, [0.6, 0.8, 1.0]), (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1])],
)
def test_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert choose_ticks(low, high) == ticks
