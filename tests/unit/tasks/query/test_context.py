"""The context of a query: what is refused before it starts, and the timings of its stages."""

from __future__ import annotations

import time

import pytest

from config.errors import UsageError
from skills.events import QueryAsked
from tasks.query.context import StageTimings, check_query
from tasks.query.query_task import QueryEndedError


@pytest.mark.parametrize("task", ["", "  \n\t", "\u3000"])
def test_an_empty_task_is_refused(task: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        check_query(QueryAsked(task=task), 100)


def test_an_overlong_task_names_the_setting() -> None:
    check_query(QueryAsked(task="x" * 100), 100)
    with pytest.raises(UsageError, match=r"limits\.query_characters"):
        check_query(QueryAsked(task="x" * 101), 100)


def test_an_unknown_stage_is_named_with_those_there_are() -> None:
    check_query(QueryAsked(task="x", without=("dense", "floor")), 100)
    with pytest.raises(UsageError, match=r"unknown stage magic; stages: .*diffusion"):
        check_query(QueryAsked(task="x", without=("magic",)), 100)


def test_stages_are_timed_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    timings = StageTimings()
    with timings.measure("one"):
        now[0] += 0.01
    with timings.measure("two"):
        now[0] += 0.002
    assert list(timings.milliseconds.items()) == [("one", 10.0), ("two", 2.0)]


def test_a_stage_may_be_refused_before_it_begins() -> None:
    def begins(stage: str) -> None:
        if stage == "two":
            raise QueryEndedError(stage)

    timings = StageTimings(begins)
    with timings.measure("one"):
        pass
    with pytest.raises(QueryEndedError), timings.measure("two"):
        raise AssertionError("the stage ran")
    assert list(timings.milliseconds) == ["one"]
