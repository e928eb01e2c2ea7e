"""The values of the tools' arguments are those of the domain."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from skills.bundle.rejection import RejectionReason
from skills.outcomes.model import OutcomeKind, Reporter
from workers.mcp.schemas import JudgedBy, OutcomeName, Reason


def values(annotated: Any) -> set[str]:
    """The literals of an annotated type, whether or not it is optional."""
    inner = get_args(annotated)[0]
    found = set()
    for part in get_args(inner):
        found |= set(get_args(part)) or {part}
    return {one for one in found if isinstance(one, str)}


@pytest.mark.parametrize(
    ("annotated", "kinds"),
    [(OutcomeName, OutcomeKind), (Reason, RejectionReason), (JudgedBy, Reporter)],
)
def test_the_tools_take_what_outcomes_have(annotated: Any, kinds: Any) -> None:
    assert values(annotated) == {one.value for one in kinds}
