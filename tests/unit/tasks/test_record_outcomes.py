"""Recording reported outcomes: their time, and how many of a query are accepted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from skills.bundle.model import Bundle
from skills.events import Event, OutcomesReported, QueryAsked, SkillOutcome, new_event
from skills.outcomes.model import SECONDS_PER_DAY, AnsweredQuery, AnsweredSkill, OutcomeKind
from tasks.journal.protocol import job_id
from tasks.journal.sqlite import SqliteJournal
from tasks.metrics_recorder import NullMetrics
from tasks.outcomes.protocol import MAX_OUTCOMES_PER_QUERY
from tasks.outcomes.record_answers import record_missing_answers
from tasks.outcomes.record_outcomes import record_outcomes
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.policies import Deadline

ANSWERED = time.time() - 30 * SECONDS_PER_DAY


@dataclass
class Services:
    """The part of the services that recording needs."""

    journal: SqliteJournal = field(default_factory=lambda: SqliteJournal(":memory:"))
    outcomes: SqliteOutcomeStore = field(default_factory=lambda: SqliteOutcomeStore(":memory:"))
    metrics: NullMetrics = field(default_factory=NullMetrics)
    learned_links: None = None
    writable: bool = True

    def record(self, event: Event) -> str:
        """Accept and record an event; the state of its job, and the reason of a refusal."""
        self.journal.add_job(event, "outcome")
        services: Any = self
        record_outcomes(services, Deadline(60), [job_id(event)])
        job = self.journal.get_job(job_id(event))
        return f"{job.state} {job.reason}"


@pytest.fixture
def services() -> Iterator[Services]:
    made = Services()
    skills = (AnsweredSkill("lib:one", 7, 1),)
    made.outcomes.add_answers(
        [AnsweredQuery("q1", "", "", "clean the tracks", ANSWERED, hit=True, skills=skills)]
    )
    yield made
    made.journal.close()
    made.outcomes.close()


def report(number: int = 1, at: float | None = None, query_id: str = "q1") -> Event:
    """An event with so many outcomes, at a time of its sender's clock."""
    one = SkillOutcome(skill_id="lib:one", outcome=OutcomeKind.HELPED)
    event = new_event(OutcomesReported(query_id=query_id, outcomes=(one,) * number), "tests")
    when = time.time() if at is None else at
    return event.model_copy(update={"time": datetime.fromtimestamp(when, UTC)})


def reported(services: Services) -> float:
    [one] = services.outcomes.get_outcomes(["q1"])["q1"]
    return one.reported


def test_the_time_of_an_outcome_is_that_of_its_event(services: Services) -> None:
    services.record(report(at=ANSWERED + 5 * SECONDS_PER_DAY))
    assert reported(services) == pytest.approx(ANSWERED + 5 * SECONDS_PER_DAY, abs=0.001)


def test_an_outcome_is_not_before_the_answer(services: Services) -> None:
    services.record(report(at=ANSWERED - 90 * SECONDS_PER_DAY))
    assert reported(services) == ANSWERED


def test_an_outcome_is_not_after_its_receipt(services: Services) -> None:
    before = time.time()
    services.record(report(at=before + 90 * SECONDS_PER_DAY))
    assert before - 0.001 <= reported(services) <= time.time()


def test_a_report_beyond_the_limit_of_a_query_is_refused(services: Services) -> None:
    parts = [report(200) for _ in range(MAX_OUTCOMES_PER_QUERY // 200)]
    assert {services.record(event) for event in parts} == {"done "}
    assert services.record(report()) == (
        "failed at most 1,000 outcomes of a query are accepted of an owner; query 'q1' has no room "
        "for these"
    )
    assert services.outcomes.count_outcomes() == {"": MAX_OUTCOMES_PER_QUERY}
    # Its job may be deleted when an event is delivered again.
    services.journal.delete_ended_jobs("outcome", -1)
    assert services.record(parts[-1]) == "done "


def test_a_missing_answer_is_recorded_although_the_clock_was_set_back(services: Services) -> None:
    query = new_event(QueryAsked(task="clean the tracks"), "tests")
    services.journal.add_job(query, "query")
    bundle = Bundle(query_id=job_id(query), status="NO_SKILL_HIT", task="clean", budget=99)
    services.journal.finish_job(job_id(query), bundle.model_dump(mode="json"))
    services.outcomes.set_recorded_until(time.time() + 3_600)
    given: Any = services
    assert record_missing_answers(given) == 1
    assert services.outcomes.get_answers([job_id(query)])


def test_a_report_about_an_answer_of_another_version_is_refused(services: Services) -> None:
    query = new_event(QueryAsked(task="clean the tracks"), "tests")
    services.journal.add_job(query, "query")
    services.journal.finish_job(job_id(query), {"bundle": "of another version"})
    assert services.record(report(query_id=job_id(query))).startswith("failed no answered query")


def test_events_of_another_version_hold_up_no_others(services: Services) -> None:
    """A report fails with the reason; the answer of a query is left out."""
    given: Any = services
    events = [new_event(QueryAsked(task="clean the tracks"), "tests") for _ in range(2)]
    for event in events:
        services.journal.add_job(event, "query")
        bundle = Bundle(query_id=job_id(event), status="NO_SKILL_HIT", task="clean", budget=99)
        services.journal.finish_job(job_id(event), bundle.model_dump(mode="json"))
    report = events[0].model_copy(update={"type": "skillbus.outcome.reported.v9", "id": "r"})
    services.journal.add_job(report, "outcome")
    with services.journal._database.transaction() as connection:
        connection.execute(
            "UPDATE jobs SET payload = replace(payload, '.v1', '.v9') WHERE id = ?",
            (job_id(events[0]),),
        )
    assert record_missing_answers(given) == 2
    ids = [job_id(event) for event in events]
    assert list(services.outcomes.get_answers(ids)) == ids[1:]
    record_outcomes(given, Deadline(60), [job_id(report)])
    [(state, reason)] = services.journal.get_job_states([job_id(report)]).values()
    assert state == "failed"
    assert "version 9 of skillbus.outcome.reported is not known" in reason
