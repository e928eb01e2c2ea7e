"""What is said about the form of a request."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from skills.events import OutcomesReported, describe_problems, describe_validation_error

GOOD = {"skill_id": "team:deploy", "outcome": "helped"}


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        (
            [GOOD | {"skill_id": "map-tiles"}],
            "outcomes.0.skill_id: 'map-tiles' is not a skill id: write SOURCE:PATH, as a bundle "
            "names it",
        ),
        ([GOOD | {"skill_id": "x"}], "outcomes.0.skill_id: 'x' is not a skill id: "),
        ([GOOD | {"skill_id": "a\nb:c" * 99}], "outcomes.0.skill_id: 'a\\nb:c"),
        ([GOOD | {"skill_id": "team:../x"}], "outcomes.0.skill_id: a path must be relative"),
        ([GOOD | {"outcome": "liked"}], "outcomes.0.outcome: Input should be 'used', "),
        ([GOOD | {"literal['']": 1}], "outcomes.0.literal['']: Extra inputs"),
        ([], "outcomes: Tuple should have at least 1 item"),
    ],
)
def test_each_problem_is_named_once_and_in_plain_words(outcomes: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        OutcomesReported.model_validate({"query_id": "q", "outcomes": outcomes})
    text = describe_validation_error(caught.value)
    assert text.startswith(said)
    assert "; " not in text
    assert len(text) < 250


def test_many_problems_are_counted() -> None:
    wrong = [{"type": "missing", "loc": (name,), "msg": "Field required"} for name in "abcdefg"]
    assert describe_problems(wrong).endswith("e: Field required; and 2 more")
