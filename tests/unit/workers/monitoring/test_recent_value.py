"""A value that takes long to find: the last one is used meanwhile."""

from __future__ import annotations

import itertools
import threading

import pytest

from config.errors import TransientError
from workers.monitoring.recent_value import RecentValue


def test_the_last_value_is_used_while_a_newer_one_is_looked_for() -> None:
    is_open, values = threading.Event(), itertools.count(1)
    is_open.set()

    def find() -> int:
        is_open.wait(30)
        return next(values)

    recent = RecentValue(find, fresh_seconds=0, wait_seconds=30)
    first = recent.get()
    assert first is not None
    assert first.value == 1
    slow = RecentValue(find, fresh_seconds=0, wait_seconds=0)
    slow._last = first
    is_open.clear()
    assert slow.get() == first
    assert slow.get() == first
    is_open.set()
    while slow.get() == first:
        pass
    later = slow.get()
    assert later is not None
    assert later.value >= 2


def test_nothing_is_known_while_the_first_is_looked_for() -> None:
    is_open = threading.Event()
    recent = RecentValue(lambda: is_open.wait(30), fresh_seconds=60, wait_seconds=0)
    assert recent.get() is None
    is_open.set()
    while (found := recent.get()) is None:
        pass
    assert found.value is True


def test_a_failure_is_raised_and_tried_again() -> None:
    answers = iter([TransientError("away"), None])

    def find() -> str:
        error = next(answers)
        if error is not None:
            raise error
        return "here"

    recent = RecentValue(find, fresh_seconds=60, wait_seconds=30)
    with pytest.raises(TransientError, match="away"):
        recent.get()
    found = recent.get()
    assert found is not None
    assert found.value == "here"
