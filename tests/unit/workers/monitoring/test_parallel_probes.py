"""Questions to servers: one that hangs holds up nothing, and is not asked again meanwhile."""

from __future__ import annotations

import threading

import pytest

from config.errors import TransientError, UsageError
from workers.monitoring.parallel_probes import ParallelProbes


def refuse() -> str:
    raise UsageError("wrong password")


def test_answers_and_refusals_come_by_name() -> None:
    answers = ParallelProbes({"good": lambda: "yes", "bad": refuse}).run(60)
    assert answers["good"] == "yes"
    assert isinstance(answers["bad"], UsageError)
    assert list(answers) == ["good", "bad"]


def test_one_that_hangs_is_away_and_asked_once() -> None:
    gate = threading.Event()
    begun: list[threading.Thread] = []

    def hang() -> str:
        begun.append(threading.current_thread())
        gate.wait(120)
        return f"late {len(begun)}"

    questions = ParallelProbes({"slow": hang, "quick": lambda: "yes"})
    for _ in range(2):
        answers = questions.run(1)
        assert isinstance(answers["slow"], TransientError)
        assert "did not answer within 1 s" in str(answers["slow"])
        assert answers["quick"] == "yes"
    [thread] = begun
    gate.set()
    thread.join()
    assert questions.run(60)["slow"] == "late 2", "what came too late is too old"


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        ParallelProbes({"wrong": lambda: 1 / 0}).run(60)
