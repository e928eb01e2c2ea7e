"""The prompt of select: what it shows of candidates, its size, and which answers are void."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skills.token_count import count_tokens
from tasks.language_model.protocol import InvalidAnswerError
from tasks.query.language_model.select_prompt import (
    INSTRUCTIONS,
    PROMPT_TOKENS,
    SelectAnswer,
    SelectEntry,
    check_answer,
    select_request,
)


def make_answer(**lists: Any) -> SelectAnswer:
    empty: dict[str, Any] = {
        "needed": [],
        "alternatives": [],
        "useful": [],
        "order": [],
        "conflicts": [],
        "rejected": [],
        "complete": False,
    }
    return SelectAnswer.model_validate(empty | lists)


def pick(number: int, relevancy: int = 8) -> dict[str, int]:
    return {"id": number, "relevancy": relevancy, "specificity": 5}


def test_every_candidate_is_one_line_under_its_number() -> None:
    entries = [
        SelectEntry("bake", "Bakes bread.", "Dough", ("needs 2",)),
        SelectEntry("knead", "Kneads\ndough."),
    ]
    lines = select_request("bake a loaf", entries).data.splitlines()
    assert lines == [
        'task: "bake a loaf"',
        "candidates:",
        '[1] "bake": "Bakes bread." | section "Dough" | needs 2',
        '[2] "knead": "Kneads dough."',
    ]


def test_fifty_long_candidates_and_a_long_task_stay_within_the_tokens() -> None:
    text = "Converts, validates and reports tables of measurements from many instruments. " * 60
    entries = [SelectEntry("a-rather-long-skill-name " * 3, text, text, ("needs 3",) * 9)] * 50
    request = select_request(text * 10, entries)
    used = count_tokens(request.data) + count_tokens(request.instructions)
    assert PROMPT_TOKENS * 0.9 < used <= PROMPT_TOKENS * 1.03


def test_the_answer_may_have_what_the_budget_of_a_call_leaves() -> None:
    request = select_request("bake", [SelectEntry("bake", "Bakes.")] * 2)
    assert PROMPT_TOKENS + request.max_tokens <= 6_000
    assert request.instructions == INSTRUCTIONS


@given(name=st.text(max_size=80), description=st.text(max_size=400), task=st.text(max_size=400))
def test_no_text_leaves_its_frame(name: str, description: str, task: str) -> None:
    entry = SelectEntry(name, description, description, ())
    lines = select_request(task, [entry, entry]).data.split("\n")
    assert len(lines) == 4
    assert json.loads(lines[0].removeprefix("task: ")) == json.loads(lines[0][6:])
    assert lines[2].removeprefix("[1]") == lines[3].removeprefix("[2]")


@pytest.mark.parametrize(
    ("lists", "cause"),
    [
        ({"needed": [pick(4)]}, "were not given"),
        ({"rejected": [{"reason": "wrong_tool", "ids": [9]}]}, "were not given"),
        ({"needed": [pick(1), pick(1)]}, "two lists"),
        ({"needed": [pick(1)], "rejected": [{"reason": "wrong_tool", "ids": [1]}]}, "two lists"),
        ({"needed": [pick(1)], "order": [2]}, "order"),
        ({"needed": [pick(1)], "order": [1, 1]}, "order"),
        ({"needed": [pick(1)], "conflicts": [[1, 3]]}, "conflict"),
        ({"alternatives": [{"id": 2, "of": 1, "relevancy": 3}]}, "alternative"),
    ],
)
def test_an_answer_that_names_what_was_not_given_is_void(lists: Any, cause: str) -> None:
    with pytest.raises(InvalidAnswerError, match=cause):
        check_answer(make_answer(**lists), 3)


def test_an_answer_may_leave_candidates_open() -> None:
    check_answer(make_answer(needed=[pick(2)], useful=[pick(3)], conflicts=[[2, 3]]), 3)


@pytest.mark.parametrize("missing", ["needed", "rejected", "order"])
def test_an_answer_without_one_of_the_lists_does_not_fit_the_form(missing: str) -> None:
    answer = make_answer().model_dump()
    del answer[missing]
    with pytest.raises(ValueError, match=missing):
        SelectAnswer.model_validate(answer)
