"""What every `Coordinator` does, in one process and among many."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable

import pytest

from config.server_settings import ServerSettings
from tasks.broker.redis_connection import PREFIX, connect
from tasks.coordination import redis_lock, redis_workers
from tasks.coordination.local import LocalCoordinator
from tasks.coordination.protocol import MAX_YIELD_SECONDS, Coordinator, IngestRequest
from tasks.coordination.redis import RedisCoordinator
from tasks.coordination.redis_workers import ALIVE_SECONDS
from tasks.policies import EMBED_SECTIONS, INGEST, INGEST_QUEUE, LINK
from tests.support.program.program import wait_for
from tests.support.servers.redis_database import redis_settings

__all__ = ["redis_settings"]

HOUR = 3600.0
"""Seconds that are not over while a test runs."""


@pytest.fixture(autouse=True)
def _workers_live_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose next heartbeat is late is dead to others; those here beat once."""
    monkeypatch.setattr(redis_workers, "_ALIVE_MILLISECONDS", int(HOUR * 1000))


@pytest.fixture(params=["local", "redis"])
def coordinator(request: pytest.FixtureRequest) -> Coordinator:
    if request.param == "local":
        return LocalCoordinator()
    return worker(request.getfixturevalue("redis_settings"))


def worker(
    settings: ServerSettings, name: str = "one", waiting: Callable[[str], int] = lambda queue: 0
) -> RedisCoordinator:
    """The coordinator of a live worker, as one of its children has it."""
    made = RedisCoordinator(connect(settings), settings, waiting, name)
    made.beat()
    return made


def test_a_lock_is_held_by_one_at_a_time(coordinator: Coordinator) -> None:
    with coordinator.try_lock("plan") as first, coordinator.try_lock("plan") as second:
        assert (first, second) == (True, False)
        with coordinator.try_lock("maintain") as other:
            assert other
    with coordinator.try_lock("plan") as again:
        assert again


def test_an_error_releases_the_lock(coordinator: Coordinator) -> None:
    with pytest.raises(ValueError, match="x"), coordinator.try_lock("plan"):
        raise ValueError("x")
    with coordinator.try_lock("plan") as again:
        assert again


def test_of_many_threads_one_takes_the_lock(coordinator: Coordinator) -> None:
    firsts: list[bool] = []
    together = threading.Barrier(6)

    def work() -> None:
        together.wait()
        with coordinator.try_lock("plan") as first:
            firsts.append(first)
            together.wait()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(firsts) == [False] * 5 + [True]


def test_work_that_is_paused_has_a_reason_until_the_pause_ends(coordinator: Coordinator) -> None:
    assert coordinator.get_pause("refine") == ""
    coordinator.pause("refine", "tokens are spent", HOUR)
    assert coordinator.get_pause("refine") == "tokens are spent"
    assert coordinator.get_pause("other") == ""
    assert coordinator.find_paused(["other", "refine"]) == {"refine"}
    assert coordinator.find_paused([]) == set()
    coordinator.pause("refine", "no answer", HOUR)
    assert coordinator.get_pause("refine") == "no answer"
    coordinator.pause("refine", "no answer", 0.1)
    time.sleep(0.15)
    assert coordinator.get_pause("refine") == ""


def test_due_work_is_claimed_once_per_period(coordinator: Coordinator) -> None:
    assert coordinator.claim_if_due("sweep", HOUR)
    assert not coordinator.claim_if_due("sweep", HOUR)
    assert coordinator.claim_if_due("report", 0.2)
    time.sleep(0.25)
    assert coordinator.claim_if_due("report", 0.2)
    assert not coordinator.claim_if_due("sweep", HOUR)


def test_a_task_error_is_kept_until_it_is_cleared(coordinator: Coordinator) -> None:
    assert coordinator.task_error == ""
    coordinator.task_error = "no room on the disk"
    assert coordinator.task_error == "no room on the disk"
    coordinator.task_error = ""
    assert coordinator.task_error == ""


def test_a_finished_task_counts_one_attempt(coordinator: Coordinator) -> None:
    for _ in range(3):
        assert coordinator.start_task(INGEST.name, "task", ["a", "b"]) == 1
        coordinator.finish_task(INGEST.name, "task", ["a", "b"])
    assert coordinator.get_stalled_tasks() == []


def test_bulk_work_waits_for_queries_for_a_short_time(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, sleep = [], time.sleep

    def counted(seconds: float) -> None:
        looks.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", counted)
    started = time.monotonic()
    with coordinator.track_query():
        coordinator.yield_to_queries()  # without a limit, for as long as the query runs
    assert time.monotonic() - started > MAX_YIELD_SECONDS / 2
    assert sum(looks) <= MAX_YIELD_SECONDS * 1.1


def test_ingest_requests_are_remembered(coordinator: Coordinator) -> None:
    coordinator.record_ingest_request(7, "trace", 1.5)
    assert coordinator.get_ingest_requests([7, 8]) == {7: IngestRequest("trace", 1.5)}


# -- among many processes
@pytest.fixture
def two(redis_settings: ServerSettings) -> tuple[RedisCoordinator, RedisCoordinator]:
    """Two workers."""
    return worker(redis_settings, "one"), worker(redis_settings, "two")


Two = tuple[RedisCoordinator, RedisCoordinator]


def test_workers_live_until_they_end(two: Two) -> None:
    one, _ = two
    assert one.alive_workers() == ["one", "two"]
    one.beat([INGEST_QUEUE])
    assert one.get_worker_queues() == {"one": [INGEST_QUEUE], "two": []}
    one.deregister_worker()
    assert one.alive_workers() == ["two"]


def test_the_same_work_in_several_processes_at_once_is_no_crash(two: Two) -> None:
    for number in range(6):
        assert two[number % 2].start_task(LINK.name, f"message {number}", []) == 1
    assert len(two[0].get_running_tasks()) == 6
    assert two[0].get_stalled_tasks() == []


def test_a_message_that_is_delivered_again_counts_as_a_crash(two: Two) -> None:
    assert [two[n % 2].start_task(INGEST.name, "message", ["a"]) for n in range(4)] == [1, 2, 3, 4]
    assert two[0].start_task(INGEST.name, "another message", ["b"]) == 1
    two[0].finish_task(INGEST.name, "message", ["a"])
    assert two[0].start_task(INGEST.name, "message", ["a"]) == 1


def test_a_start_that_is_recorded_twice_is_no_crash(two: Two) -> None:
    assert [two[0].start_task(INGEST.name, "message", ["a"]) for _ in range(3)] == [1, 1, 1]
    assert two[1].start_task(INGEST.name, "message", ["a"]) == 2


def test_a_stalled_task_is_returned_once_and_counts_as_a_crash(two: Two) -> None:
    one, other = two
    one.start_task(INGEST.name, "message", ["a"])
    other.start_task(INGEST.name, "running", ["b"])
    one.deregister_worker()
    found = other.get_stalled_tasks()
    assert [(each.task, each.ids) for each in found] == [(INGEST.name, ("a",))]
    assert other.get_stalled_tasks() == []
    assert other.start_task(INGEST.name, "sent again", ["a"]) == 2


def test_a_task_far_beyond_its_limit_is_stalled(two: Two, redis_settings: ServerSettings) -> None:
    two[0].start_task(INGEST.name, "message", ["a"])
    with connect(redis_settings) as client:
        since, _, note = str(client.hget(f"{PREFIX}running", "message")).partition(" ")
        long_ago = int(since) - int(INGEST.time_limit) - 61
        client.hset(f"{PREFIX}running", "message", f"{long_ago} {note}")
    assert [each.task for each in two[1].get_stalled_tasks()] == [INGEST.name]


def test_a_task_of_another_version_is_not_stalled(two: Two) -> None:
    one, other = two
    one.start_task("skillbus.unknown", "message", ["a"])
    assert not other.needs_reconcile
    one.deregister_worker()
    assert not other.needs_reconcile
    assert other.get_stalled_tasks() == []
    assert list(other.get_running_tasks()) == ["message"]


def test_clocks_need_not_agree(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() - 7200)
    two[0].start_task(INGEST.name, "message", ["a"])
    monkeypatch.undo()
    assert two[1].get_stalled_tasks() == []


def test_pending_tasks_are_those_that_run_and_those_that_wait(
    redis_settings: ServerSettings,
) -> None:
    waiting = {INGEST.queue: 3, EMBED_SECTIONS.queue: 0}
    one = worker(redis_settings, "one", lambda queue: waiting[queue])
    other = worker(redis_settings, "two", lambda queue: waiting[queue])
    one.start_task(INGEST.name, "message", ["a"])
    other.start_task(EMBED_SECTIONS.name, "embed_sections", ["b"])
    assert (one.count_pending(INGEST.name), one.count_pending(EMBED_SECTIONS.name)) == (4, 1)
    waiting[INGEST.queue] = 0
    assert one.add_pending(INGEST.name, -1) == 0
    assert other.add_pending(INGEST.name, -1) == 0
    assert other.count_pending(EMBED_SECTIONS.name) == 1
    assert one.add_pending(INGEST.name, 1) == 1
    one.finish_task(INGEST.name, "message", ["a"])
    assert one.count_pending(INGEST.name) == 0


def test_of_several_that_end_at_once_the_last_sees_no_other(two: Two) -> None:
    two[0].start_task(INGEST.name, "a", ["a"])
    two[1].start_task(INGEST.name, "b", ["b"])
    assert two[0].add_pending(INGEST.name, -1) == 1
    assert two[1].add_pending(INGEST.name, -1) == 0


def test_a_lease_is_kept_as_long_as_the_work_takes(
    two: Two, redis_settings: ServerSettings
) -> None:
    key = f"{PREFIX}lock:plan"
    with connect(redis_settings) as client, two[0].try_lock("plan"):
        client.pexpire(key, left := int(ALIVE_SECONDS * 800))
        wait_for(lambda: client.pttl(key) > left)
        with two[1].try_lock("plan") as second:
            assert not second


def test_a_lease_that_another_process_took_is_neither_renewed_nor_released(
    two: Two, redis_settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_lock, "LEASE_SECONDS", 1.0)
    key = f"{PREFIX}lock:plan"
    with connect(redis_settings) as client:
        with two[0].try_lock("plan") as first:
            assert first
            client.set(key, "two|1|token", px=3_600_000)
            time.sleep(0.4)  # a renewal of its own lease
            assert client.pttl(key) > 3_000_000
        assert client.get(key) == "two|1|token"


def test_a_lock_that_was_taken_by_a_call_whose_answer_was_lost_is_held(
    two: Two, redis_settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
    token = f"one|{os.getpid()}|{uuid.UUID(int=7).hex}"
    with connect(redis_settings) as client:
        client.set(f"{PREFIX}lock:plan", token, px=int(HOUR * 1000))
        with two[0].try_lock("plan") as first:
            assert first
        assert client.get(f"{PREFIX}lock:plan") is None


def test_a_claim_whose_answer_was_lost_is_repeated_as_the_same_claim(
    two: Two, redis_settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
    with connect(redis_settings) as client:
        client.set(f"{PREFIX}due:sweep", uuid.UUID(int=7).hex, px=int(HOUR * 1000))
    assert two[0].claim_if_due("sweep", HOUR)
    monkeypatch.undo()
    assert not two[1].claim_if_due("sweep", HOUR)


def _die_with_the_lock(settings: ServerSettings, name: str) -> None:
    with worker(settings, name).try_lock("plan"):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("name", ["one/1", "elsewhere/1"])
def test_the_lease_of_a_dead_process_is_taken_over(
    redis_settings: ServerSettings, name: str
) -> None:
    process = multiprocessing.get_context("fork").Process(
        target=_die_with_the_lock, args=(redis_settings, name)
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    one = worker(redis_settings, "one/2")
    with one.try_lock("plan") as first:
        # of the same worker at once, of another when its lease is over
        assert first == name.startswith("one")
    with connect(redis_settings) as client:
        client.pexpire(f"{PREFIX}lock:plan", 1)
    time.sleep(0.01)
    with one.try_lock("plan") as first:
        assert first
