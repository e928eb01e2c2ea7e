"""What every `Journal` does. A new implementation adds its opener to `reopen`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis.connection import Connection
from redis.exceptions import ConnectionError as NotConnectedError

from config.errors import NotFoundError
from config.server_settings import ServerSettings
from skills.access import UNRESTRICTED
from skills.events import (
    Event,
    QueryAsked,
    SkillUpserted,
    SourceChanged,
    new_event,
    replace_origin,
)
from tasks.broker.redis_connection import PREFIX, connect
from tasks.journal.protocol import (
    MAX_ASKED,
    MAX_BODY_CHARACTERS,
    DeadLetter,
    Journal,
    job_id,
    new_dead_letter_id,
)
from tasks.journal.redis import RedisJournal
from tasks.journal.sqlite import SqliteJournal
from tasks.journal.work_records import TaskRun
from tests.support.servers.redis_database import redis_settings

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


def asked_by(owner: str, task: str) -> Event:
    event = new_event(QueryAsked(task=task), "skillbus/test")
    return replace_origin(event, owner, UNRESTRICTED)


def letter(number: int = 0, **values: object) -> DeadLetter:
    now = 1_000_000.0 + number
    given: dict[str, Any] = {
        "id": new_dead_letter_id(now),
        "task": "skillbus.plan",
        "ids": ("one", "zwei: ü"),
        "reason": f"number {number}",
        "attempts": 3,
        "trace_id": "trace",
        "body": "",
        "failed_at": now,
    }
    return DeadLetter(**(given | values))


def test_an_accepted_event_is_open_until_it_ends(journal: Journal) -> None:
    event = changed()
    assert journal.add_job(event, "event")
    assert journal.list_open_jobs("event") == [event.id]
    job = journal.get_job(event.id)
    assert (job.event, job.kind, job.state) == (event, "event", "accepted")
    journal.finish_job(event.id, {"found": 3, "name": "Prüfung 中"})
    job = journal.get_job(event.id)
    assert (job.state, job.outcome, job.reason) == ("done", {"found": 3, "name": "Prüfung 中"}, "")
    assert journal.list_open_jobs("event") == []


def test_jobs_are_read_together_in_the_order_of_their_ids(journal: Journal) -> None:
    first, second = changed("/a"), changed("/b")
    for event in (first, second):
        journal.add_job(event, "event")
    found = journal.get_jobs([second.id, "absent", first.id])
    assert list(found) == [second.id, first.id]
    assert [one.event for one in found.values()] == [second, first]
    assert not journal.get_jobs([])


def test_the_same_event_is_accepted_once(journal: Journal) -> None:
    event = changed()
    assert journal.add_job(event, "event")
    assert not journal.add_job(event, "event")
    journal.finish_job(event.id)
    assert not journal.add_job(event, "event")
    assert journal.list_open_jobs("event") == []
    assert journal.get_job(event.id).state == "done"


def test_foreign_events_are_distinguished_by_source_and_id(journal: Journal) -> None:
    one = changed().model_copy(update={"id": "1", "source": "//git.example.org/a"})
    other = one.model_copy(update={"source": "//git.example.org/b"})
    own = one.model_copy(update={"source": "skillbus/test"})
    assert len({job_id(one), job_id(other), job_id(own)}) == 3
    assert all(journal.add_job(event, "event") for event in (one, other, own))
    assert not journal.add_job(one.model_copy(), "event")
    assert journal.get_job(job_id(other)).event == other
    assert job_id(own) == "1"


def test_events_of_different_owners_do_not_collide(journal: Journal) -> None:
    event = changed().model_copy(update={"id": "1", "source": "ci"})
    owned = [replace_origin(event, owner, UNRESTRICTED) for owner in ("", "a", "b")]
    assert all(journal.add_job(one, "event") for one in owned)
    assert not any(journal.add_job(one, "event") for one in owned)
    assert [journal.get_job(job_id(one)).event.owner for one in owned] == ["", "a", "b"]


def test_an_outcome_is_written_once(journal: Journal) -> None:
    event = changed()
    journal.add_job(event, "event")
    journal.fail_job(event.id, "no such folder")
    journal.finish_job(event.id, {"late": True})
    journal.fail_job(event.id, "another reason")
    job = journal.get_job(event.id)
    assert (job.state, job.outcome, job.reason) == ("failed", None, "no such folder")


def test_a_cancelled_job_stays_cancelled(journal: Journal) -> None:
    question, other = asked(), asked()
    for event in (question, other):
        journal.add_job(event, "query", ttl_seconds=600)
    assert journal.cancel_job(question.id)
    assert not journal.cancel_job(question.id)
    journal.finish_job(question.id, {"late": True})
    journal.fail_job(question.id, "late")
    journal.reopen_jobs([question.id])
    job = journal.get_job(question.id)
    assert (job.state, job.outcome, job.reason) == ("cancelled", None, "")
    assert journal.list_open_jobs("query") == [other.id]
    assert journal.get_job_states([question.id]) == {question.id: ("cancelled", "")}
    journal.finish_job(other.id, {"found": 1})
    assert not journal.cancel_job(other.id)
    assert journal.get_job(other.id).state == "done"
    assert not journal.cancel_job("absent")
    assert journal.delete_ended_jobs("query", -60) == 2


def test_stages_are_listed_while_a_job_is_open(journal: Journal) -> None:
    question, other = asked(), asked()
    for event in (question, other):
        journal.add_job(event, "query", ttl_seconds=600)
    assert journal.list_stages(question.id) == []
    assert journal.start_stage(question.id, "retrieve")
    assert journal.start_stage(question.id, "rerank")
    assert journal.start_stage(other.id, "retrieve")
    assert journal.list_stages(question.id) == ["retrieve", "rerank"]
    assert journal.get_job(question.id).state == "accepted"
    journal.cancel_job(question.id)
    journal.finish_job(other.id)
    for event in (question, other):
        assert not journal.start_stage(event.id, "embed_sections")
        assert journal.list_stages(event.id) == []
    assert not journal.start_stage("absent", "embed_sections")
    assert journal.list_stages("absent") == []


def test_ending_an_unknown_job_has_no_effect(journal: Journal) -> None:
    journal.finish_job("absent", {"found": 1})
    journal.fail_job("absent", "why")
    journal.reopen_jobs(["absent"])
    assert journal.list_open_jobs("event") == []
    assert journal.list_ended_jobs("event", 0.0, "failed").job_ids == ()


def test_open_jobs_come_oldest_first_and_by_kind(journal: Journal) -> None:
    events = [changed(f"/{number}") for number in range(5)]
    for event in events:
        journal.add_job(event, "event")
    question = asked()
    journal.add_job(question, "query", ttl_seconds=600)
    assert journal.list_open_jobs("event") == [event.id for event in events]
    assert journal.list_open_jobs("event", limit=2) == [event.id for event in events[:2]]
    assert journal.list_open_jobs("query") == [question.id]
    assert (journal.count_open_jobs("event"), journal.count_open_jobs("query")) == (5, 1)


def test_jobs_keep_their_order_when_the_clock_of_redis_is_set_back(
    redis_settings: ServerSettings,
) -> None:
    events = [changed(f"/skills/{number}") for number in range(4)]
    with closing(open_at(redis_settings)) as journal, connect(redis_settings) as client:
        journal.add_job(events[0], "event")
        client.zincrby(
            f"{PREFIX}open:event", 3_600, job_id(events[0])
        )  # as if it was an hour ahead
        for event in events[1:]:
            journal.add_job(event, "event")
        assert journal.list_open_jobs("event") == [job_id(event) for event in events]
        assert journal.get_oldest_job_age("event") == 0


def test_expiry_is_of_the_clock_of_the_journal(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted_for_ever, wanted_soon = changed(), asked()
    journal.add_job(wanted_for_ever, "event")
    journal.add_job(wanted_soon, "query", ttl_seconds=600)
    assert journal.get_job(wanted_for_ever.id).expires_in_seconds is None
    if not isinstance(journal, SqliteJournal):  # whose clock is this machine's
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + 3600)
    left = journal.get_job(wanted_soon.id).expires_in_seconds
    assert left is not None
    assert 0 < left <= 600
    journal.add_job(overdue := asked(), "query", ttl_seconds=-1)
    left = journal.get_job(overdue.id).expires_in_seconds
    assert left is not None
    assert left < 0


def test_the_age_of_the_oldest_that_is_open(journal: Journal) -> None:
    assert journal.get_oldest_job_age("event") == 0
    first, second = changed(), changed()
    journal.add_job(first, "event")
    time.sleep(0.05)
    journal.add_job(second, "event")
    assert journal.get_oldest_job_age("event") >= 0.05
    journal.finish_job(first.id)
    journal.finish_job(second.id)
    assert journal.get_oldest_job_age("event") == 0


def test_states_of_known_jobs(journal: Journal) -> None:
    one, two = changed(), changed()
    for event in (one, two):
        journal.add_job(event, "event")
    journal.fail_job(two.id, "why")
    assert journal.get_job_states([one.id, two.id, "unknown"]) == {
        one.id: ("accepted", ""),
        two.id: ("failed", "why"),
    }
    assert journal.get_job_states([]) == {}


def test_ended_jobs_are_listed_by_kind_and_state(journal: Journal) -> None:
    failed, done, query = changed(), changed(), asked()
    journal.add_job(failed, "event")
    journal.add_job(done, "event")
    journal.add_job(query, "query")
    journal.fail_job(failed.id, "why")
    journal.fail_job(query.id, "why")
    journal.finish_job(done.id, {})
    ended = journal.list_ended_jobs("event", 0.0, "failed")
    assert ended.job_ids == (failed.id,)
    assert journal.list_ended_jobs("event", 0.0).job_ids == (done.id,)
    assert journal.list_ended_jobs("event", ended.until + 60, "failed").job_ids == ()


def test_failed_jobs_can_be_reopened(journal: Journal) -> None:
    failed, done = changed(), changed()
    for event in (failed, done):
        journal.add_job(event, "event")
    journal.fail_job(failed.id, "why", usage=True)
    assert journal.get_job(failed.id).outcome == {"usage": True}
    journal.finish_job(done.id, {"found": 1})
    journal.reopen_jobs([failed.id, done.id, "absent"])
    assert journal.get_job(failed.id).outcome is None
    assert journal.list_open_jobs("event") == [failed.id]
    assert journal.list_ended_jobs("event", 0.0, "failed").job_ids == ()
    assert journal.get_job(failed.id).reason == ""
    assert journal.get_job(done.id).outcome == {"found": 1}
    assert journal.delete_ended_jobs("event", -60) == 1
    journal.finish_job(failed.id, {"found": 2})
    assert journal.get_job(failed.id).outcome == {"found": 2}


def test_deletion_leaves_open_jobs(journal: Journal) -> None:
    done, failed, still_open, question = changed(), changed(), changed(), asked()
    for event in (done, failed, still_open):
        journal.add_job(event, "event")
    journal.add_job(question, "query")
    journal.finish_job(done.id)
    journal.fail_job(failed.id, "why")
    journal.finish_job(question.id)
    assert journal.delete_ended_jobs("event", 60) == 0
    assert journal.delete_ended_jobs("event", -60) == 2
    assert journal.list_open_jobs("event") == [still_open.id]
    assert journal.list_ended_jobs("event", 0.0, "failed").job_ids == ()
    assert journal.get_job(question.id).state == "done"
    with pytest.raises(NotFoundError, match="no event or query"):
        journal.get_job(done.id)


def test_many_jobs_are_deleted(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.journal.redis._BATCH_SIZE", 5)
    events = [changed() for _ in range(12)]
    for event in events:
        journal.add_job(event, "event")
        journal.finish_job(event.id)
    assert journal.delete_ended_jobs("event", -60) == len(events)
    assert journal.get_job_states([event.id for event in events]) == {}


def to_reply(number: int = 0) -> Event:
    return asked().model_copy(update={"replyto": f"skillbus.replies.{number}"})


def test_an_ended_job_that_wants_a_reply_enters_the_outbox(journal: Journal) -> None:
    events = [to_reply(number) for number in range(3)]
    for event in events:
        journal.add_job(event, "query")
    journal.add_job(silent := asked(), "query")
    assert journal.list_pending_replies() == []
    journal.finish_job(events[1].id, {"status": "SKILL_HIT"})
    journal.fail_job(events[0].id, "why")
    journal.finish_job(silent.id)
    assert journal.list_pending_replies() == [events[1].id, events[0].id]
    assert journal.list_pending_replies(1) == [events[1].id]
    assert journal.get_job(events[1].id).event == events[1]
    journal.mark_replied(events[1].id)
    journal.mark_replied("absent")
    assert journal.list_pending_replies() == [events[0].id]


def test_a_reply_is_sent_once(journal: Journal) -> None:
    event = to_reply()
    journal.add_job(event, "query")
    journal.fail_job(event.id, "why")
    journal.mark_replied(event.id)
    journal.reopen_jobs([event.id])
    journal.finish_job(event.id)
    assert journal.list_pending_replies() == []
    assert not journal.add_job(event, "query")
    with pytest.raises(NotFoundError):
        journal.get_job("absent")


def test_a_reopened_job_leaves_the_outbox_until_it_ends(journal: Journal) -> None:
    event = to_reply()
    journal.add_job(event, "query")
    journal.fail_job(event.id, "why")
    journal.reopen_jobs([event.id])
    assert journal.list_pending_replies() == []
    journal.finish_job(event.id)
    assert journal.list_pending_replies() == [event.id]
    assert journal.delete_ended_jobs("query", -60) == 1
    assert journal.list_pending_replies() == []


def test_a_job_that_ends_wakes_a_reader_of_the_outbox(place: Place) -> None:
    if isinstance(place, ServerSettings):  # Redis is waited for half of this at a time
        place = place.model_copy(update={"timeout_seconds": 240.0})
    journal = open_at(place)
    event = to_reply()
    journal.add_job(event, "query")
    journal.wait_for_pending_reply(0.05)  # ends without a reply
    ended = threading.Timer(0.1, journal.finish_job, [event.id])
    ended.start()
    started = time.monotonic()
    while not journal.list_pending_replies():
        journal.wait_for_pending_reply(120)
    assert time.monotonic() - started < 60, "it was not woken"
    ended.join()
    journal.close()


def test_a_wait_of_no_time_for_a_reply_ends(journal: Journal) -> None:
    journal.wait_for_pending_reply(0)


def test_an_unknown_id_is_an_error_of_the_caller(journal: Journal) -> None:
    with pytest.raises(NotFoundError, match="'absent'"):
        journal.get_job("absent")
    with pytest.raises(NotFoundError, match="'absent'"):
        journal.get_dead_letter("absent")


def test_dead_letters_are_kept_until_they_are_discarded(journal: Journal) -> None:
    letters = [letter(number) for number in range(3)]
    for one in letters:
        journal.add_dead_letter(one)
    journal.add_dead_letter(letters[0])
    assert journal.count_dead_letters() == 3
    assert journal.list_dead_letters() == letters[::-1]
    assert journal.list_dead_letters(1) == letters[2:]
    assert journal.get_dead_letter(letters[1].id) == letters[1]
    assert journal.delete_dead_letter(letters[1].id)
    assert not journal.delete_dead_letter(letters[1].id)
    assert journal.list_dead_letters() == [letters[2], letters[0]]
    with pytest.raises(NotFoundError):
        journal.get_dead_letter(letters[1].id)


def test_the_oldest_of_too_many_dead_letters_are_deleted(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.journal.protocol.MAX_DEAD_LETTERS", 3)
    letters = [letter(number) for number in range(5)]
    for one in letters:
        journal.add_dead_letter(one)
    assert journal.list_dead_letters() == letters[:1:-1]
    assert journal.count_dead_letters() == 3
    with pytest.raises(NotFoundError):
        journal.get_dead_letter(letters[0].id)


def test_a_dead_letter_without_a_task_keeps_its_body(journal: Journal) -> None:
    body = "\x00\ufffd{" * (MAX_BODY_CHARACTERS // 3)
    unreadable = letter(task="", ids=(), body=body, attempts=0, trace_id="")
    journal.add_dead_letter(unreadable)
    assert journal.get_dead_letter(unreadable.id) == unreadable


def _write_and_die(place: Place, accepted: list[Event], replied: Event) -> None:
    journal = open_at(place)
    for event in (*accepted, replied):
        journal.add_job(event, "event")
    journal.finish_job(replied.id)
    journal.add_dead_letter(letter())
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_was_written_survives_a_kill(place: Place) -> None:
    accepted, replied = [changed(f"/{number}") for number in range(20)], to_reply()
    process = multiprocessing.get_context("fork").Process(
        target=_write_and_die, args=(place, accepted, replied)
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    with closing(open_at(place)) as journal:
        assert journal.list_open_jobs("event") == [event.id for event in accepted]
        assert journal.list_pending_replies() == [replied.id]
        assert journal.count_dead_letters() == 1


def test_many_threads_add_each_job_once(journal: Journal) -> None:
    events = [changed() for _ in range(20)]
    accepted: list[str] = []

    def work() -> None:
        accepted.extend(event.id for event in events if journal.add_job(event, "event"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(accepted) == sorted(event.id for event in events)
    assert len(journal.list_open_jobs("event")) == len(events)


def _accept_all(place: Place, events: list[Event], accepted: list[str]) -> None:
    journal = open_at(place)
    accepted.extend([event.id for event in events if journal.add_job(event, "event")])
    journal.close()


def test_many_processes_add_each_job_once(place: Place) -> None:
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
            process.join(120)
        assert sorted(accepted) == sorted(event.id for event in events)


# -- purges


def test_a_forgotten_skill_is_named_by_no_ended_job(journal: Journal) -> None:
    skill_id = 'team:größe "x"'
    files = {"SKILL.md": "---\nname: x\ndescription: y\n---\nText."}
    brought = new_event(SkillUpserted(skill_id=skill_id, files=files), "skillbus/test")
    other = new_event(SkillUpserted(skill_id="team:other", files=files), "skillbus/test")
    answered, unanswered, unrelated = asked(), asked(), asked()
    for event in (brought, other):
        journal.add_job(event, "event")
    for event in (answered, unanswered, unrelated):
        journal.add_job(event, "query")
    journal.finish_job(answered.id, {"skills": [{"skill_id": skill_id, "text": "Text."}]})
    journal.finish_job(unrelated.id, {"skills": [{"skill_id": "team:other"}]})
    assert journal.forget_skill(skill_id) == 2
    journal.overwrite_deleted()
    assert journal.list_open_jobs("event") == [other.id]
    assert journal.list_open_jobs("query") == [unanswered.id]
    assert journal.get_job(unrelated.id).state == "done"
    for gone in (brought, answered):
        with pytest.raises(NotFoundError):
            journal.get_job(gone.id)
    assert journal.forget_skill(skill_id) == 0


def test_a_job_whose_answer_was_lost_is_new(redis_settings: ServerSettings) -> None:
    """The client repeats a call whose connection was lost: then the job is recorded already."""
    is_lost = False

    class LosingConnection(Connection):
        def read_response(self, *args: Any, **options: Any) -> Any:
            nonlocal is_lost
            answer = super().read_response(*args, **options)
            if is_lost:
                is_lost = False
                self.disconnect()  # type: ignore[no-untyped-call]
                raise NotConnectedError
            return answer

    client = connect(redis_settings)
    client.connection_pool.connection_class = LosingConnection
    with closing(RedisJournal(client, redis_settings)) as journal:
        first, second = changed(), changed()
        assert journal.add_job(first, "event")
        is_lost = True
        assert journal.add_job(second, "event")
        assert not is_lost
        assert not journal.add_job(second, "event")
        assert journal.list_open_jobs("event") == [first.id, second.id]


def test_a_forgotten_skill_is_found_behind_many_open_jobs(redis_settings: ServerSettings) -> None:
    files = {"SKILL.md": "---\nname: x\ndescription: y\n---\nText."}
    brought = new_event(SkillUpserted(skill_id="team:x", files=files), "skillbus/test")
    with closing(open_at(redis_settings)) as journal, connect(redis_settings) as client:
        client.zadd(f"{PREFIX}open:event", {f"{number}": number for number in range(10_000)})
        journal.add_job(brought, "event")
        assert journal.forget_skill("team:x") == 1
        assert journal.count_open_jobs("event") == 10_000


def test_a_forgotten_skill_is_named_by_no_letter(journal: Journal) -> None:
    kept = letter(1, ids=("team:a2",))
    for one in (
        letter(0, ids=("team:a", "team:b")),
        kept,
        letter(2, ids=(), body='{"x":"team:a"}'),
    ):
        journal.add_dead_letter(one)
    assert journal.forget_dead_letters("team:a") == 2
    assert journal.list_dead_letters() == [kept]


class TestAsked:
    def test_the_newest_queries_of_an_owner_are_listed(
        self, journal: Journal, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours = [asked_by("ana", f"task {number}") for number in range(3)]
        for one in (*ours, asked_by("ben", "other"), asked()):
            journal.add_job(one, "query")
            journal.add_job(one, "query")
        journal.add_job(replace_origin(changed(), "ana", UNRESTRICTED), "event")
        journal.finish_job(ours[1].id, {"skills": []})
        with closing(open_at(place)) as other_gateway:
            found = other_gateway.list_asked("ana")
        assert [(one.id, one.task, one.state) for one in found] == [
            (ours[2].id, "task 2", "accepted"),
            (ours[1].id, "task 1", "done"),
            (ours[0].id, "task 0", "accepted"),
        ]
        assert all(abs(one.accepted - time.time()) < 60 for one in found)
        assert [one.task for one in journal.list_asked("")] == ["x"]
        assert journal.list_asked("none") == []

    def test_what_is_deleted_is_not_listed(self, journal: Journal) -> None:
        gone, kept = asked_by("ana", "gone"), asked_by("ana", "kept")
        for one in (gone, kept):
            journal.add_job(one, "query")
        journal.finish_job(gone.id)
        journal.delete_ended_jobs("query", -60)
        assert [one.id for one in journal.list_asked("ana")] == [kept.id]

    def test_so_many_are_listed_and_no_more(self, journal: Journal) -> None:
        queries = [asked_by("ana", str(number)) for number in range(MAX_ASKED + 2)]
        for one in queries:
            journal.add_job(one, "query")
        listed = [one.id for one in journal.list_asked("ana")]
        assert listed == [one.id for one in queries[:1:-1]]


class TestEndedSessions:
    def test_an_ended_session_is_known_to_other_gateways(
        self, journal: Journal, place: Place
    ) -> None:
        with closing(open_at(place)) as other_gateway:
            assert not other_gateway.is_session_ended("a")
            journal.end_session("a", 60)
            journal.end_session("a", 60)
            assert other_gateway.is_session_ended("a")
            assert not other_gateway.is_session_ended("b")

    def test_it_is_forgotten_once_its_cookies_have_expired(self, journal: Journal) -> None:
        journal.end_session("a", 0.001)
        while journal.is_session_ended("a"):
            time.sleep(0.001)
        journal.end_session("b", 60)
        assert not journal.is_session_ended("a")
        assert journal.is_session_ended("b")


class TestWorkRecords:
    def test_runs_are_read_by_trace_in_the_order_in_which_they_ended(
        self, journal: Journal
    ) -> None:
        now = time.time()
        linked = TaskRun("skillbus.link", now - 1, now, "done", 3)
        planned = TaskRun("skillbus.plan", now - 3, now - 2, "failed", 2, 3, "OSError", "Gerät ü")
        journal.add_task_run(linked, ["a"])
        journal.add_task_run(planned, ["a", "b", "a"])
        assert journal.list_task_runs("a") == [planned, linked]
        assert journal.list_task_runs("b") == [planned]
        assert journal.list_task_runs("none") == []

    def test_the_first_runs_of_a_trace_are_kept(
        self, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in ("sqlite_work_records", "redis_work_records"):
            monkeypatch.setattr(f"tasks.journal.{module}.MAX_RUNS", 2)
        now = time.time()
        runs = [TaskRun("skillbus.ingest", now, now + one, "done", 1) for one in range(4)]
        for run in runs:
            journal.add_task_run(run, ["a"])
        assert journal.list_task_runs("a") == runs[:2]

    def test_a_forgotten_skill_is_in_no_reason(self, journal: Journal) -> None:
        now = time.time()
        quoting = TaskRun("skillbus.ingest", now, now, "failed", 1, 1, "OSError", "team:a: no")
        kept = TaskRun("skillbus.plan", now, now + 1, "done", 1)
        for run in (quoting, kept):
            journal.add_task_run(run, ["a", "b"])
        journal.forget_skill("team:a")
        assert journal.list_task_runs("a") == journal.list_task_runs("b") == [kept]

    def test_work_is_counted_by_minute(self, journal: Journal) -> None:
        since = time.time() - 120
        now = time.time()
        journal.add_task_run(TaskRun("skillbus.link", now, now, "done", 3), ["a", "b"])
        journal.add_task_run(TaskRun("skillbus.link", now, now, "failed", 3), [])
        journal.count_work({("event", "done"): 2, ("searchable", "-3"): 5})
        journal.count_work({("event", "failed"): 1, ("searchable", "-3"): 1})
        minutes = journal.list_work_minutes(since)
        assert all(one.at % 60 == 0 and one.at > since for one in minutes)
        assert sum(one.tasks.get("skillbus.link", 0) for one in minutes) == 2
        assert sum(one.failed for one in minutes) == 1
        assert sum(one.events for one in minutes) == 3
        assert sum(one.searchable.get(-3, 0) for one in minutes) == 6
        assert journal.list_work_minutes(time.time() + 3_600) == []
