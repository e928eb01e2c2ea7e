"""Failed queries: what the journal keeps for remote readers, and what the local caller gets."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from config.errors import MisconfiguredError, PermanentError, SkillbusError, TransientError
from skills.bundle.model import Bundle
from skills.events import QueryAsked, new_event
from skills.outcomes.model import AnsweredQuery
from tasks.journal.sqlite import SqliteJournal
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.policies import Deadline
from tasks.query import query_task
from tasks.query.pipeline import Answer
from tasks.query.process_state.durations import StageDurations


@pytest.fixture
def services() -> Any:
    coordinator = SimpleNamespace(track_query=contextlib.nullcontext)
    metrics = SimpleNamespace(
        record_query=lambda state, degraded: None, record_answers=lambda way, count: None
    )
    journal, outcomes = SqliteJournal(":memory:"), SqliteOutcomeStore(":memory:")
    yield SimpleNamespace(
        journal=journal,
        outcomes=outcomes,
        coordinator=coordinator,
        metrics=metrics,
        stage_durations=StageDurations(),
    )
    journal.close()
    outcomes.close()


def _query(services: Any, session: str = "", *, record_use: bool = True) -> str:
    asked = QueryAsked(task="fire a kiln", session=session, record_use=record_use)
    event = new_event(asked, "skillbus/test")
    services.journal.add_job(event, "query", ttl_seconds=600)
    return event.id


@pytest.mark.parametrize(
    ("error", "public"),
    [
        (MisconfiguredError("Redis at redis://inside:6379: no login"), "a setting of this"),
        (PermanentError("http://inside:9200 refused (400)", public_message="refused"), "refused"),
        (PermanentError("budget: at least 40"), "budget: at least 40"),
    ],
)
def test_the_journal_keeps_the_public_message(
    services: Any, monkeypatch: pytest.MonkeyPatch, error: SkillbusError, public: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(query_task, "answer_query", fail)
    log = structlog.testing.CapturingLogger()
    monkeypatch.setattr(query_task, "log", log)
    query_id = _query(services)
    outcome = query_task.run_query(services, Deadline(600.0), [query_id])
    assert outcome["reason"] == str(error)
    reason = services.journal.get_job(query_id).reason
    assert reason.startswith(public)
    assert "inside" not in reason
    assert [call.kwargs["reason"] for call in log.calls] == (
        [str(error)] if "inside" in str(error) else []
    )


def test_a_query_that_failed_after_all_retries_names_no_server(services: Any) -> None:
    query_id = _query(services)
    error = TransientError("Redis at redis://inside:6379 is gone", public_message="try again")
    query_task.fail_query(services, [query_id], error)
    assert services.journal.get_job(query_id).reason == "TransientError: try again"


def _cut_short(services: Any) -> str:
    """A query of a session whose delivery was killed between recording its answer and ending it."""
    query_id = _query(services, "s")
    answer = AnsweredQuery(query_id, "", "s", "cut short", 0.0, hit=False)
    services.outcomes.add_answers([answer])
    return query_id


@pytest.mark.parametrize("ended", ["expired", "cancelled", "failed"])
def test_an_answer_that_did_not_end_its_query_is_not_of_the_session(
    services: Any, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    query_id = _cut_short(services)
    if ended == "failed":
        query_task.fail_query(services, [query_id], TransientError("gone"))
    elif ended == "cancelled":
        services.journal.cancel_job(query_id)
    else:
        job = services.journal.get_job(query_id)
        expired = replace(job, expires_in_seconds=0.0)
        monkeypatch.setattr(services.journal, "get_job", lambda _: expired)
    if ended != "failed":  # a query that failed is not delivered again
        query_task.run_query(services, Deadline(600.0), [query_id])
    assert services.outcomes.list_session("", "s", 9) == []


def test_a_look_is_kept_for_outcomes_but_is_no_use(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_id = _query(services, "s", record_use=False)
    answer = Answer(_bundle(query_id, "fire a kiln"), None)
    monkeypatch.setattr(query_task, "answer_query", lambda *_: answer)
    query_task.run_query(services, Deadline(600.0), [query_id])
    assert not services.outcomes.get_answers([query_id])[query_id].is_use
    assert services.outcomes.list_session("", "s", 9) == []


def _bundle(query_id: str, task: str) -> Bundle:
    return Bundle(query_id=query_id, status="NO_SKILL_HIT", task=task, budget=9, session="s")


@pytest.mark.parametrize("ended", ["done", "cancelled", ""])
def test_session_and_caller_get_what_the_journal_holds(
    services: Any, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    query_id = _cut_short(services)

    def answer(*_: object) -> Answer:
        if ended == "done":
            other = _bundle(query_id, "the other delivery").model_dump(mode="json")
            services.journal.finish_job(query_id, other)
        elif ended:
            services.journal.cancel_job(query_id)
        return Answer(_bundle(query_id, "this delivery"), None)

    monkeypatch.setattr(query_task, "answer_query", answer)
    outcome = query_task.run_query(services, Deadline(600.0), [query_id])
    job = services.journal.get_job(query_id)
    assert (outcome["state"], outcome.get("bundle")) == (job.state, job.outcome)
    kept = [one.task for one in services.outcomes.list_session("", "s", 9)]
    assert kept == {"done": ["the other delivery"], "cancelled": [], "": ["this delivery"]}[ended]


def test_a_delivery_that_fails_leaves_the_answer_of_another(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_id = _cut_short(services)

    def fail(*_: object) -> Answer:
        other = _bundle(query_id, "the other delivery").model_dump(mode="json")
        services.journal.finish_job(query_id, other)
        raise PermanentError("the deadline has passed")

    monkeypatch.setattr(query_task, "answer_query", fail)
    outcome = query_task.run_query(services, Deadline(600.0), [query_id])
    assert outcome["state"] == "done"
    query_task.fail_query(services, [query_id], TransientError("gone"))
    assert [one.query_id for one in services.outcomes.list_session("", "s", 9)] == [query_id]
