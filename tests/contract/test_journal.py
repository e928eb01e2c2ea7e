"""What every `Journal` does. A new implementation adds its opener to `reopen`."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.errors import NotFoundError
from config.settings import ServerSettings
from skills.events import Event, QueryAsked, SourceChanged, new_event, with_origin
from tasks.broker.redis_connection import connect
from tasks.journal.protocol import LARGEST_BODY, DeadLetter, Journal, job_id, new_letter_id
from tasks.journal.redis import RedisJournal
from tasks.journal.sqlite import SqliteJournal
from tests.support.redis_database import redis_settings

__all__ = ["redis_settings"]

Reopen = Callable[[], Journal]
Place = Path | ServerSettings


def open_at(place: Place) -> Journal:
    """The journal of a place, from any process."""
    if isinstance(place, ServerSettings):
        return RedisJournal(connect(place), place)
    return SqliteJournal(place)


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return tmp_path / "journal.db"
    settings: ServerSettings = request.getfixturevalue("redis_settings")
    return settings


@pytest.fixture
def journal(place: Place) -> Iterator[Journal]:
    opened = open_at(place)
    yield opened
    opened.close()


def changed(root: str = "/skills") -> Event:
    return new_event(SourceChanged(source_id="team", root=root), "skillbus/test")


def asked() -> Event:
    return new_event(QueryAsked(task="x"), "skillbus/test")


def letter(number: int = 0, **values: object) -> DeadLetter:
    now = 1_000_000.0 + number
    given: dict[str, object] = {
        "id": new_letter_id(now),
        "task": "skillbus.plan",
        "ids": ("one", "zwei: ü"),
        "reason": f"number {number}",
        "attempts": 3,
        "trace_id": "trace",
        "body": "",
        "buried": now,
    }
    return DeadLetter(**(given | values))


def test_an_accepted_event_is_open_until_it_ends(journal: Journal) -> None:
    event = changed()
    assert journal.accept(event, "event")
    assert journal.open_jobs("event") == [event.id]
    job = journal.job(event.id)
    assert (job.event, job.kind, job.state) == (event, "event", "accepted")
    journal.finish(event.id, {"found": 3, "name": "Prüfung 中"})
    job = journal.job(event.id)
    assert (job.state, job.outcome, job.reason) == ("done", {"found": 3, "name": "Prüfung 中"}, "")
    assert journal.open_jobs("event") == []


def test_the_same_event_is_accepted_once(journal: Journal) -> None:
    event = changed()
    assert journal.accept(event, "event")
    assert not journal.accept(event, "event")
    journal.finish(event.id)
    assert not journal.accept(event, "event")
    assert journal.open_jobs("event") == []
    assert journal.job(event.id).state == "done"


def test_foreign_events_are_told_apart_by_source_and_id(journal: Journal) -> None:
    one = changed().model_copy(update={"id": "1", "source": "//git.example.org/a"})
    other = one.model_copy(update={"source": "//git.example.org/b"})
    own = one.model_copy(update={"source": "skillbus/test"})
    assert len({job_id(one), job_id(other), job_id(own)}) == 3
    assert all(journal.accept(event, "event") for event in (one, other, own))
    assert not journal.accept(one.model_copy(), "event")
    assert journal.job(job_id(other)).event == other
    assert job_id(own) == "1"


def test_nobody_takes_the_place_of_anothers_event(journal: Journal) -> None:
    event = changed().model_copy(update={"id": "1", "source": "ci"})
    owned = [with_origin(event, owner) for owner in ("", "a", "b")]
    assert all(journal.accept(one, "event") for one in owned)
    assert not any(journal.accept(one, "event") for one in owned)
    assert [journal.job(job_id(one)).event.owner for one in owned] == ["", "a", "b"]


def test_an_outcome_is_written_once(journal: Journal) -> None:
    event = changed()
    journal.accept(event, "event")
    journal.fail(event.id, "no such folder")
    journal.finish(event.id, {"late": True})
    journal.fail(event.id, "another reason")
    job = journal.job(event.id)
    assert (job.state, job.outcome, job.reason) == ("failed", None, "no such folder")


def test_a_cancelled_job_is_open_no_more_and_stays_cancelled(journal: Journal) -> None:
    question, other = asked(), asked()
    for event in (question, other):
        journal.accept(event, "query", seconds=5)
    assert journal.cancel(question.id)
    assert not journal.cancel(question.id)
    journal.finish(question.id, {"late": True})
    journal.fail(question.id, "late")
    journal.reopen([question.id])
    job = journal.job(question.id)
    assert (job.state, job.outcome, job.reason) == ("cancelled", None, "")
    assert journal.open_jobs("query") == [other.id]
    assert journal.failures() == []
    assert journal.states([question.id]) == {question.id: ("cancelled", "")}
    journal.finish(other.id, {"found": 1})
    assert not journal.cancel(other.id)
    assert journal.job(other.id).state == "done"
    assert not journal.cancel("absent")
    assert journal.forget("query", -60) == 2


def test_a_job_tells_its_stages_while_it_is_open(journal: Journal) -> None:
    question, other = asked(), asked()
    for event in (question, other):
        journal.accept(event, "query", seconds=5)
    assert journal.stages(question.id) == []
    assert journal.pass_stage(question.id, "retrieve")
    assert journal.pass_stage(question.id, "rerank")
    assert journal.pass_stage(other.id, "retrieve")
    assert journal.stages(question.id) == ["retrieve", "rerank"]
    assert journal.job(question.id).state == "accepted"
    journal.cancel(question.id)
    journal.finish(other.id)
    for event in (question, other):
        assert not journal.pass_stage(event.id, "page")
        assert journal.stages(event.id) == []
    assert not journal.pass_stage("absent", "page")
    assert journal.stages("absent") == []


def test_ending_what_nobody_knows_is_nothing(journal: Journal) -> None:
    journal.finish("absent", {"found": 1})
    journal.fail("absent", "why")
    journal.reopen(["absent"])
    assert journal.open_jobs("event") == []
    assert journal.failures() == []


def test_open_jobs_come_oldest_first_and_by_kind(journal: Journal) -> None:
    events = [changed(f"/{number}") for number in range(5)]
    for event in events:
        journal.accept(event, "event")
    question = asked()
    journal.accept(question, "query", seconds=5)
    assert journal.open_jobs("event") == [event.id for event in events]
    assert journal.open_jobs("event", limit=2) == [event.id for event in events[:2]]
    assert journal.open_jobs("query") == [question.id]
    assert (journal.count_open("event"), journal.count_open("query")) == (5, 1)


def test_seconds_left_are_of_the_journals_clock(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted_for_ever, wanted_soon = changed(), asked()
    journal.accept(wanted_for_ever, "event")
    journal.accept(wanted_soon, "query", seconds=5)
    assert journal.job(wanted_for_ever.id).seconds_left is None
    if not isinstance(journal, SqliteJournal):  # whose clock is this machine's
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + 3600)
    left = journal.job(wanted_soon.id).seconds_left
    assert left is not None
    assert 0 < left <= 5
    journal.accept(overdue := asked(), "query", seconds=-1)
    left = journal.job(overdue.id).seconds_left
    assert left is not None
    assert left < 0


def test_the_age_of_the_oldest_that_is_open(journal: Journal) -> None:
    assert journal.age_of_oldest("event") == 0
    first, second = changed(), changed()
    journal.accept(first, "event")
    time.sleep(0.05)
    journal.accept(second, "event")
    assert journal.age_of_oldest("event") >= 0.05
    journal.finish(first.id)
    journal.finish(second.id)
    assert journal.age_of_oldest("event") == 0


def test_states_of_those_that_are_known(journal: Journal) -> None:
    one, two = changed(), changed()
    for event in (one, two):
        journal.accept(event, "event")
    journal.fail(two.id, "why")
    assert journal.states([one.id, two.id, "unknown"]) == {
        one.id: ("accepted", ""),
        two.id: ("failed", "why"),
    }
    assert journal.states([]) == {}


def test_failures_newest_first(journal: Journal) -> None:
    events = [changed() for _ in range(3)]
    for number, event in enumerate(events):
        journal.accept(event, "event")
        journal.fail(event.id, str(number))
    assert [job.reason for job in journal.failures(2)] == ["2", "1"]


def test_what_failed_can_be_opened_again(journal: Journal) -> None:
    failed, done = changed(), changed()
    for event in (failed, done):
        journal.accept(event, "event")
    journal.fail(failed.id, "why")
    journal.finish(done.id, {"found": 1})
    journal.reopen([failed.id, done.id, "absent"])
    assert journal.open_jobs("event") == [failed.id]
    assert journal.failures() == []
    assert journal.job(failed.id).reason == ""
    assert journal.job(done.id).outcome == {"found": 1}
    assert journal.forget("event", -60) == 1
    journal.finish(failed.id, {"found": 2})
    assert journal.job(failed.id).outcome == {"found": 2}


def test_forgetting_leaves_what_is_open(journal: Journal) -> None:
    done, failed, still_open, question = changed(), changed(), changed(), asked()
    for event in (done, failed, still_open):
        journal.accept(event, "event")
    journal.accept(question, "query")
    journal.finish(done.id)
    journal.fail(failed.id, "why")
    journal.finish(question.id)
    assert journal.forget("event", 60) == 0
    assert journal.forget("event", -60) == 2
    assert journal.open_jobs("event") == [still_open.id]
    assert journal.failures() == []
    assert journal.job(question.id).state == "done"
    with pytest.raises(NotFoundError, match="no event or query"):
        journal.job(done.id)


def test_many_are_forgotten(journal: Journal) -> None:
    events = [changed() for _ in range(1_100)]
    for event in events:
        journal.accept(event, "event")
        journal.finish(event.id)
    assert journal.forget("event", -60) == len(events)
    assert journal.states([event.id for event in events]) == {}


def to_reply(number: int = 0) -> Event:
    return asked().model_copy(update={"replyto": f"skillbus.replies.{number}"})


def test_who_waits_for_a_reply_is_in_the_outbox_once_the_job_has_ended(journal: Journal) -> None:
    events = [to_reply(number) for number in range(3)]
    for event in events:
        journal.accept(event, "query")
    journal.accept(silent := asked(), "query")
    assert journal.unreplied() == []
    journal.finish(events[1].id, {"status": "SKILL_HIT"})
    journal.fail(events[0].id, "why")
    journal.finish(silent.id)
    assert journal.unreplied() == [events[1].id, events[0].id]
    assert journal.unreplied(1) == [events[1].id]
    assert journal.job(events[1].id).event == events[1]
    journal.replied(events[1].id)
    journal.replied("absent")
    assert journal.unreplied() == [events[0].id]


def test_a_reply_is_sent_once(journal: Journal) -> None:
    event = to_reply()
    journal.accept(event, "query")
    journal.fail(event.id, "why")
    journal.replied(event.id)
    journal.reopen([event.id])
    journal.finish(event.id)
    assert journal.unreplied() == []
    assert not journal.accept(event, "query")
    with pytest.raises(NotFoundError):
        journal.job("absent")


def test_what_is_opened_again_waits_for_its_new_end(journal: Journal) -> None:
    event = to_reply()
    journal.accept(event, "query")
    journal.fail(event.id, "why")
    journal.reopen([event.id])
    assert journal.unreplied() == []
    journal.finish(event.id)
    assert journal.unreplied() == [event.id]
    assert journal.forget("query", -60) == 1
    assert journal.unreplied() == []


def test_a_job_that_ends_wakes_who_waits_for_the_outbox(journal: Journal) -> None:
    event = to_reply()
    journal.accept(event, "query")
    started = time.monotonic()
    journal.await_unreplied(0.05)
    assert time.monotonic() - started < 1
    ended = threading.Timer(0.1, journal.finish, [event.id])
    ended.start()
    started = time.monotonic()
    while not journal.unreplied() and time.monotonic() - started < 10:
        journal.await_unreplied(5)
    assert 0.05 < time.monotonic() - started < 1
    ended.join()


def test_the_outbox_is_there_after_reopening(place: Place) -> None:
    first = open_at(place)
    event = to_reply()
    first.accept(event, "query")
    first.finish(event.id)
    first.close()
    second = open_at(place)
    assert second.unreplied() == [event.id]
    second.close()


def test_an_unknown_id_is_an_error_of_the_caller(journal: Journal) -> None:
    with pytest.raises(NotFoundError, match="'absent'"):
        journal.job("absent")
    with pytest.raises(NotFoundError, match="'absent'"):
        journal.letter("absent")


def test_dead_letters_are_kept_until_they_are_discarded(journal: Journal) -> None:
    letters = [letter(number) for number in range(3)]
    for one in letters:
        journal.bury(one)
    journal.bury(letters[0])
    assert journal.count_letters() == 3
    assert journal.letters() == letters[::-1]
    assert journal.letters(1) == letters[2:]
    assert journal.letter(letters[1].id) == letters[1]
    assert journal.discard(letters[1].id)
    assert not journal.discard(letters[1].id)
    assert journal.letters() == [letters[2], letters[0]]
    with pytest.raises(NotFoundError):
        journal.letter(letters[1].id)


def test_of_too_many_dead_letters_the_oldest_make_room(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.journal.protocol.MOST_LETTERS", 3)
    letters = [letter(number) for number in range(5)]
    for one in letters:
        journal.bury(one)
    assert journal.letters() == letters[:1:-1]
    assert journal.count_letters() == 3
    with pytest.raises(NotFoundError):
        journal.letter(letters[0].id)


def test_a_dead_letter_without_a_task_keeps_what_it_was(journal: Journal) -> None:
    body = "\x00\ufffd{" * (LARGEST_BODY // 3)
    unreadable = letter(task="", ids=(), body=body, attempts=0, trace_id="")
    journal.bury(unreadable)
    assert journal.letter(unreadable.id) == unreadable


def test_what_was_accepted_is_there_after_reopening(place: Place) -> None:
    first = open_at(place)
    event, buried = changed(), letter()
    first.accept(event, "event")
    first.bury(buried)
    first.close()
    second = open_at(place)
    assert second.open_jobs("event") == [event.id]
    assert second.letters() == [buried]
    second.close()


PROGRAM = """
    import os, pickle, signal, sys
    from skills.events import SourceChanged, new_event
    from tests.contract.test_journal import open_at

    journal = open_at(pickle.loads(bytes.fromhex(sys.argv[1])))
    for number in range(20):
        event = new_event(SourceChanged(source_id="team", root=f"/{number}"), "skillbus/test")
        journal.accept(event, "event")
        os.write(1, f"{event.id}\\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_acknowledged_survives_a_kill(place: Place) -> None:
    import pickle

    argument = pickle.dumps(place).hex()
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), argument],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == -9, run.stderr
    journal = open_at(place)
    assert journal.open_jobs("event") == run.stdout.split()
    journal.close()


def test_many_threads_accept_each_event_once(journal: Journal) -> None:
    events = [changed() for _ in range(20)]
    accepted: list[str] = []

    def work() -> None:
        accepted.extend(event.id for event in events if journal.accept(event, "event"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(accepted) == sorted(event.id for event in events)
    assert len(journal.open_jobs("event")) == len(events)


def _accept_all(place: Place, events: list[Event], accepted: list[str]) -> None:
    journal = open_at(place)
    accepted.extend([event.id for event in events if journal.accept(event, "event")])
    journal.close()


def test_many_processes_accept_each_event_once(place: Place) -> None:
    events = [changed() for _ in range(20)]
    forked = multiprocessing.get_context("fork")
    with forked.Manager() as manager:
        accepted = manager.list()
        processes = [
            forked.Process(target=_accept_all, args=(place, events, accepted)) for _ in range(3)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        assert sorted(accepted) == sorted(event.id for event in events)
