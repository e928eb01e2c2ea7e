"""What tasks share in a process: values made once, and who lets whom pass."""

from __future__ import annotations

import threading
import time

import pytest

from config.errors import UsageError
from skills.events import QueryAsked
from tasks.coordination.local import LocalCoordinator
from tasks.query.pipeline import StageTimings, check_query
from tasks.query.query_task import QueryEndedError
from tasks.services import Lazy


def test_a_lazy_value_is_made_once_whoever_asks() -> None:
    made: list[object] = []

    def make() -> object:
        time.sleep(0.01)
        made.append(object())
        return made[-1]

    lazy = Lazy(make)
    assert made == []
    seen: list[object] = []
    threads = [threading.Thread(target=lambda: seen.append(lazy.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert seen == made * 8


def test_a_lazy_value_that_failed_is_tried_again() -> None:
    outcomes = iter([OSError("not yet"), None])

    def make() -> str:
        error = next(outcomes)
        if error is not None:
            raise error
        return "made"

    lazy = Lazy(make)
    with pytest.raises(OSError, match="not yet"):
        lazy.get()
    assert lazy.get() == "made"


def test_counts_never_fall_below_none() -> None:
    coordinator = LocalCoordinator()
    assert coordinator.add_ingest_tasks(2) == 2
    assert coordinator.add_ingest_tasks(-3) == 0
    assert coordinator.add_embed_tasks(-1) == 0


def test_bulk_work_waits_for_a_query_but_not_for_ever() -> None:
    coordinator = LocalCoordinator()
    started = time.monotonic()
    coordinator.yield_to_queries()
    assert time.monotonic() - started < 0.1
    with coordinator.track_query():
        started = time.monotonic()
        coordinator.yield_to_queries()
        assert 0.1 < time.monotonic() - started < 5
    assert coordinator.idle.is_set()


def test_bulk_work_goes_on_when_the_last_query_has_ended() -> None:
    coordinator = LocalCoordinator()
    with coordinator.track_query():
        with coordinator.track_query():
            pass
        assert not coordinator.idle.is_set()
    assert coordinator.idle.is_set()


def test_a_query_that_fails_is_under_way_no_longer() -> None:
    coordinator = LocalCoordinator()
    with pytest.raises(ZeroDivisionError), coordinator.track_query():
        raise ZeroDivisionError
    assert coordinator.idle.is_set()


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
    with pytest.raises(UsageError, match=r"no stage magic; stages: .*diffusion"):
        check_query(QueryAsked(task="x", without=("magic",)), 100)


def test_stages_are_timed_in_their_order() -> None:
    timings = StageTimings()
    with timings.measure("one"):
        time.sleep(0.01)
    with timings.measure("two"):
        pass
    assert list(timings.milliseconds) == ["one", "two"]
    assert timings.milliseconds["one"] >= 10 > timings.milliseconds["two"]


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
