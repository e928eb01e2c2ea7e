"""Running one task: retries, what ends them, and what follows a final failure."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from config.errors import PermanentError, StaleError, TransientError
from graph.local.store import SqliteSkillGraph
from tasks import run_task as module
from tasks.coordination.local import LocalCoordinator
from tasks.journal.sqlite import SqliteJournal
from tasks.metrics_recorder import NullMetrics
from tasks.policies import INGEST, LINK, PLAN, REFINE, DeadlineExceededError, PoisonTaskError
from tasks.run_task import handle_failure, run_task
from tasks.sources.protocol import SourceMissingError


class Metrics(NullMetrics):
    def __init__(self) -> None:
        self.retries = 0
        self.outcomes: list[str] = []

    def record_retry(self, task: str) -> None:
        self.retries += 1

    def record_task(self, task: str, outcome: Any, seconds: float) -> None:
        self.outcomes.append(outcome)


class Coordinator(LocalCoordinator):
    starts = 1
    unreachable = 0
    """How many of the next calls fail."""
    finished = 0

    def start_task(self, task: str, task_id: str, ids: Sequence[str]) -> int:
        self._answer()
        return self.starts

    def finish_task(self, task: str, task_id: str, ids: Sequence[str]) -> None:
        self._answer()
        self.finished += 1

    def _answer(self) -> None:
        if self.unreachable:
            self.unreachable -= 1
            raise TransientError("Redis does not answer")


@dataclass
class Services:
    """The part of the services that running a task needs."""

    journal: SqliteJournal
    graph: SqliteSkillGraph
    coordinator: Coordinator = field(default_factory=Coordinator)
    metrics: Metrics = field(default_factory=Metrics)
    stopping: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Any]:
    graph = SqliteSkillGraph(tmp_path / "graph.db", writable=True)
    made = Services(SqliteJournal(":memory:"), graph)
    yield made
    made.journal.close()
    graph.close()


FAST = replace(INGEST, max_retries=3, retry_backoff=0.001)


def define(monkeypatch: pytest.MonkeyPatch, *outcomes: BaseException | dict[str, object]) -> None:
    """Have the ingest task end with these outcomes, one an attempt."""
    left = iter(outcomes)

    def run(*_: object) -> dict[str, object]:
        outcome = next(left)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    definition = replace(module.TASK_DEFINITIONS[INGEST.name], run=run)
    monkeypatch.setitem(module.TASK_DEFINITIONS, INGEST.name, definition)


def read_run(services: Any) -> tuple[str, int, str, str]:
    """How the only recorded run ended, its attempts and its last error."""
    [run] = services.journal.list_task_runs("id")
    return run.outcome, run.attempts, run.error, run.reason


def test_a_transient_error_is_retried(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    define(monkeypatch, TransientError("busy"), TransientError("busy"), {"published": 1})
    assert run_task(services, FAST, "id", ["a"]) == {"published": 1}
    assert services.metrics.retries == 2
    assert services.metrics.outcomes == ["done"]
    assert services.coordinator.count_pending(INGEST.name) == 2, "counted again before each retry"
    assert services.coordinator.finished == 1
    assert read_run(services) == ("done", 3, "TransientError", "busy")


def test_retries_end_with_the_last_error(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    define(monkeypatch, *(TransientError(f"busy {number}") for number in range(4)))
    with pytest.raises(TransientError, match="busy 3"):
        run_task(services, FAST, "id", ["a"])
    assert services.metrics.outcomes == ["passing"]
    assert services.coordinator.finished == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (PermanentError("wrong"), "failed"),
        (DeadlineExceededError("late"), "passing"),
        (SourceMissingError("not mounted"), "passing"),
        (ZeroDivisionError(), "failed"),
    ],
)
def test_other_errors_are_not_retried(
    services: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: str
) -> None:
    define(monkeypatch, error)
    with pytest.raises(type(error)):
        run_task(services, FAST, "id", ["a"])
    assert services.metrics.retries == 0
    assert services.metrics.outcomes == [outcome]
    assert read_run(services) == (outcome, 1, type(error).__name__, str(error))


def test_stale_work_is_a_result(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    define(monkeypatch, StaleError("newer"))
    assert run_task(services, FAST, "id", ["a"]) == {"stale": "newer"}
    assert services.metrics.outcomes == ["stale"]
    assert read_run(services) == ("stale", 1, "StaleError", "newer")


def test_a_stopping_process_does_not_retry(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    define(monkeypatch, TransientError("busy"), {"published": 1})
    services.stopping.set()
    with pytest.raises(TransientError, match="stopping"):
        run_task(services, replace(FAST, retry_backoff=60), "id", ["a"])


def test_a_task_that_killed_its_workers_is_not_run(services: Any) -> None:
    services.coordinator.starts = INGEST.max_deliveries + 1
    with pytest.raises(PoisonTaskError, match=f"started {INGEST.max_deliveries} times"):
        run_task(services, FAST, "id", ["a"])
    assert services.coordinator.finished == 1


def test_starts_and_ends_are_recorded_although_redis_is_away_for_a_moment(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FINISH_RETRY_SECONDS", 0.001)
    define(monkeypatch, {"published": 1})
    services.coordinator.unreachable = 2
    assert run_task(services, FAST, "id", ["a"]) == {"published": 1}
    services.coordinator.unreachable = 20
    module._record_finish(services, FAST, "id", ["a"])
    assert services.coordinator.finished == 2
    services.coordinator.unreachable = 20
    services.stopping.set()
    module._record_finish(services, FAST, "id", ["a"])
    assert services.coordinator.finished == 2


def test_a_final_failure_of_one_id_is_a_dead_letter(services: Any) -> None:
    handle_failure(services, LINK, "id", [], PermanentError("wrong"))
    [letter] = services.journal.list_dead_letters()
    assert (letter.task, letter.reason, letter.attempts) == (LINK.name, "wrong", 1)
    assert services.coordinator.task_error == "wrong"


def test_a_repeated_failure_of_the_same_work_replaces_its_dead_letter(services: Any) -> None:
    for reason in ("first", "second"):
        handle_failure(services, REFINE, reason, ["lib:a"], PermanentError(reason))
        handle_failure(services, LINK, reason, [], PermanentError(reason))
    handle_failure(services, REFINE, "id", ["lib:b"], PermanentError("other"))
    letters = services.journal.list_dead_letters()
    assert [(letter.ids, letter.reason) for letter in letters] == [
        (("lib:b",), "other"),
        ((), "second"),
        (("lib:a",), "second"),
    ]


def test_a_transient_failure_and_a_batch_leave_no_dead_letter(services: Any) -> None:
    handle_failure(services, PLAN, "id", ["a"], TransientError("busy"))
    assert services.coordinator.task_error == "busy"
    handle_failure(services, PLAN, "id", ["a", "b"], PermanentError("wrong"))
    assert services.journal.list_dead_letters() == []
