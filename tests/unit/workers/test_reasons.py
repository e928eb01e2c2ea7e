"""Reasons that people give."""

from __future__ import annotations

import pytest

from config.errors import UsageError
from workers.library.reasons import check_reason


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u202f", "\u3000"])
def test_a_reason_has_the_spaces_of_any_language(space: str) -> None:
    check_reason(f"vérifié{space}!", "a pin")


@pytest.mark.parametrize("character", ["\n", "\t", "\0", "\u2028", "\u202e", "\x85", "\ud800"])
def test_a_reason_has_no_control_characters(character: str) -> None:
    with pytest.raises(UsageError, match="control characters"):
        check_reason(f"read{character}it", "a pin")
