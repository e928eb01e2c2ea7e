"""Pointers are a mapping that changes leave behind as it was."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.query.process_state.pointers import Pointers

NAMES = st.sampled_from([f"lib:{name}" for name in "abcdef"])
CHANGES = st.dictionaries(NAMES, st.integers(0, 9), max_size=4)


@given(st.dictionaries(NAMES, st.integers(1, 9)), st.lists(CHANGES, max_size=6), st.integers(0, 4))
def test_they_hold_what_a_dictionary_would(
    base: dict[str, int], changes: list[dict[str, int]], merged: int
) -> None:
    with mock.patch("tasks.query.process_state.pointers._MIN_MERGED", merged):
        pointers, expected = Pointers(base), dict(base)
        for some in changes:
            before, was = pointers, dict(pointers)
            pointers = pointers.with_changes(some)
            expected |= some
            expected = {name: seq for name, seq in expected.items() if seq}
            assert dict(pointers) == expected == dict(pointers.items())
            assert len(pointers) == len(expected)
            assert list(pointers.values()) == [pointers[name] for name in pointers]
            assert dict(before) == was


def test_a_skill_that_was_withdrawn_is_missing() -> None:
    pointers = Pointers({"lib:a": 1}).with_changes({"lib:a": 0})
    assert "lib:a" not in pointers
    assert pointers.get("lib:a") is None
    with pytest.raises(KeyError):
        pointers["lib:a"]
