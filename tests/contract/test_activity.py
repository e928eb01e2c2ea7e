"""What every `Activity` does, in one process and among many."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from config.settings import ServerSettings
from tasks.broker.redis_connection import PREFIX, connect
from tasks.coordination.protocol import Activity, LocalActivity
from tasks.coordination.redis import ALIVE_SECONDS, SharedActivity
from tasks.policies import INGEST, INGEST_QUEUE, LINK, PAGE
from tests.support.redis_database import redis_settings

__all__ = ["redis_settings"]


@pytest.fixture(params=["local", "shared"])
def activity(request: pytest.FixtureRequest) -> Activity:
    if request.param == "local":
        return LocalActivity()
    return worker(request.getfixturevalue("redis_settings"))


def worker(
    settings: ServerSettings, name: str = "one", waiting: Callable[[str], int] = lambda queue: 0
) -> SharedActivity:
    """The activity of a worker that lives, as one of its children has it."""
    made = SharedActivity(connect(settings), settings, waiting, name)
    made.show_life()
    return made


def test_one_at_a_time_does_what_is_exclusive(activity: Activity) -> None:
    with activity.exclusive("plan") as first, activity.exclusive("plan") as second:
        assert (first, second) == (True, False)
        with activity.exclusive("maintain") as other:
            assert other
    with activity.exclusive("plan") as again:
        assert again


def test_an_error_releases_what_is_exclusive(activity: Activity) -> None:
    with pytest.raises(ValueError, match="x"), activity.exclusive("plan"):
        raise ValueError("x")
    with activity.exclusive("plan") as again:
        assert again


def test_of_many_threads_one_is_first(activity: Activity) -> None:
    firsts: list[bool] = []
    together = threading.Barrier(6)

    def work() -> None:
        together.wait()
        with activity.exclusive("plan") as first:
            firsts.append(first)
            together.wait()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(firsts) == [False] * 5 + [True]


def test_what_is_due_is_told_once_in_its_time(activity: Activity) -> None:
    assert activity.is_due("sweep", 0.2)
    assert not activity.is_due("sweep", 0.2)
    assert activity.is_due("report", 0.2)
    time.sleep(0.25)
    assert activity.is_due("sweep", 0.2)


def test_trouble_is_told_until_it_is_over(activity: Activity) -> None:
    assert activity.trouble == ""
    activity.trouble = "no room on the disk"
    assert activity.trouble == "no room on the disk"
    activity.trouble = ""
    assert activity.trouble == ""


def test_work_that_ends_is_begun_once(activity: Activity) -> None:
    for _ in range(3):
        assert activity.begun(INGEST.name, "task", ["a", "b"]) == 1
        activity.ended(INGEST.name, "task", ["a", "b"])
    assert activity.abandoned() == []


def test_queries_are_let_pass(activity: Activity) -> None:
    with activity.query():
        started = time.monotonic()
        activity.let_queries_pass()
        assert time.monotonic() - started < 1


def test_requests_are_remembered(activity: Activity) -> None:
    activity.note_request(7, "trace")
    found = activity.requests([7, 8])
    assert set(found) == {7}
    assert found[7].trace_id == "trace"
    assert abs(time.time() - found[7].since) < 10


# -- among many processes
@pytest.fixture
def two(redis_settings: ServerSettings) -> tuple[SharedActivity, SharedActivity]:
    """Two workers."""
    return worker(redis_settings, "one"), worker(redis_settings, "two")


Two = tuple[SharedActivity, SharedActivity]


def test_workers_live_until_they_end(two: Two) -> None:
    one, _ = two
    assert one.workers() == ["one", "two"]
    one.show_life([INGEST_QUEUE])
    assert one.queues_of_workers() == {"one": [INGEST_QUEUE], "two": []}
    one.end_life()
    assert one.workers() == ["two"]


def test_the_same_work_in_several_processes_at_once_is_no_death(two: Two) -> None:
    for number in range(6):
        assert two[number % 2].begun(LINK.name, f"message {number}", []) == 1
    assert len(two[0].running()) == 6
    assert two[0].abandoned() == []


def test_a_message_that_comes_again_has_died(two: Two) -> None:
    assert [two[n % 2].begun(INGEST.name, "message", ["a"]) for n in range(4)] == [1, 2, 3, 4]
    assert two[0].begun(INGEST.name, "another message", ["b"]) == 1
    two[0].ended(INGEST.name, "message", ["a"])
    assert two[0].begun(INGEST.name, "message", ["a"]) == 1


def test_what_a_dead_worker_had_begun_is_told_once_and_counts(two: Two) -> None:
    one, other = two
    one.begun(INGEST.name, "message", ["a"])
    other.begun(INGEST.name, "running", ["b"])
    one.end_life()
    found = other.abandoned()
    assert [(each.task, each.ids) for each in found] == [(INGEST.name, ("a",))]
    assert other.abandoned() == []
    assert other.begun(INGEST.name, "sent again", ["a"]) == 2


def test_what_takes_far_too_long_counts_as_abandoned(
    two: Two, redis_settings: ServerSettings
) -> None:
    two[0].begun(INGEST.name, "message", ["a"])
    with connect(redis_settings) as client:
        since, _, note = str(client.hget(f"{PREFIX}running", "message")).partition(" ")
        long_ago = int(since) - int(INGEST.seconds) - 61
        client.hset(f"{PREFIX}running", "message", f"{long_ago} {note}")
    assert [each.task for each in two[1].abandoned()] == [INGEST.name]


def test_clocks_need_not_agree(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() - 7200)
    two[0].begun(INGEST.name, "message", ["a"])
    monkeypatch.undo()
    assert two[1].abandoned() == []


def test_what_runs_and_what_waits_is_under_way(redis_settings: ServerSettings) -> None:
    waiting = {INGEST.queue: 3, PAGE.queue: 0}
    one = worker(redis_settings, "one", lambda queue: waiting[queue])
    other = worker(redis_settings, "two", lambda queue: waiting[queue])
    one.begun(INGEST.name, "message", ["a"])
    other.begun(PAGE.name, "page", ["b"])
    assert (one.ingesting, one.paging) == (4, 1)
    waiting[INGEST.queue] = 0
    assert one.ingest(-1) == 0
    assert other.ingest(-1) == 0
    assert other.paging == 1
    assert one.ingest(1) == 1
    one.ended(INGEST.name, "message", ["a"])
    assert one.ingesting == 0


def test_of_several_that_end_at_once_the_last_sees_no_other(two: Two) -> None:
    two[0].begun(INGEST.name, "a", ["a"])
    two[1].begun(INGEST.name, "b", ["b"])
    assert two[0].ingest(-1) == 1
    assert two[1].ingest(-1) == 0


def test_a_lease_is_kept_as_long_as_the_work_takes(
    two: Two, redis_settings: ServerSettings
) -> None:
    with connect(redis_settings) as client, two[0].exclusive("plan"):
        client.pexpire(f"{PREFIX}lock:plan", int(ALIVE_SECONDS * 300))
        time.sleep(ALIVE_SECONDS * 0.4)
        with two[1].exclusive("plan") as second:
            assert not second


def _die_with_the_lock(settings: ServerSettings, name: str) -> None:
    with worker(settings, name).exclusive("plan"):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("name", ["one/1", "elsewhere/1"])
def test_a_lease_of_a_process_that_died_is_taken(redis_settings: ServerSettings, name: str) -> None:
    process = multiprocessing.get_context("fork").Process(
        target=_die_with_the_lock, args=(redis_settings, name)
    )
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    one = worker(redis_settings, "one/2")
    with one.exclusive("plan") as first:
        # of the same worker at once, of another when its lease is over
        assert first == name.startswith("one")
    with connect(redis_settings) as client:
        client.pexpire(f"{PREFIX}lock:plan", 1)
    time.sleep(0.01)
    with one.exclusive("plan") as first:
        assert first
