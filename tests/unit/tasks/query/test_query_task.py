"""Failed queries: what the journal keeps for remote readers, and what the local caller gets."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from config.errors import MisconfiguredError, PermanentError, SkillbusError, TransientError
from skills.events import QueryAsked, new_event
from tasks.journal.sqlite import SqliteJournal
from tasks.policies import Deadline
from tasks.query import query_task


@pytest.fixture
def services() -> Any:
    coordinator = SimpleNamespace(track_query=contextlib.nullcontext)
    metrics = SimpleNamespace(record_query=lambda state, degraded: None)
    journal = SqliteJournal(":memory:")
    yield SimpleNamespace(journal=journal, coordinator=coordinator, metrics=metrics)
    journal.close()


def _query(services: Any) -> str:
    event = new_event(QueryAsked(task="fire a kiln"), "skillbus/test")
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
