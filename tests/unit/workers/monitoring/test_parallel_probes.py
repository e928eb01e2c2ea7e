"""Questions to servers: one that hangs holds up nothing, and is not asked again meanwhile."""

from __future__ import annotations

import threading
import time

import pytest

from config.errors import TransientError, UsageError
from workers.monitoring.parallel_probes import ParallelProbes


def refuse() -> str:
    raise UsageError("wrong password")


def test_answers_and_refusals_come_by_name() -> None:
    answers = ParallelProbes({"good": lambda: "yes", "bad": refuse}).run(5)
    assert answers["good"] == "yes"
    assert isinstance(answers["bad"], UsageError)
    assert list(answers) == ["good", "bad"]


def test_one_that_hangs_is_away_and_asked_once() -> None:
    gate = threading.Event()
    begun = []

    def hang() -> str:
        begun.append(1)
        gate.wait(30)
        return f"late {len(begun)}"

    questions = ParallelProbes({"slow": hang, "quick": lambda: "yes"})
    started = time.monotonic()
    for _ in range(3):
        answers = questions.run(0.05)
        assert isinstance(answers["slow"], TransientError)
        assert "did not answer within 0.05 s" in str(answers["slow"])
        assert answers["quick"] == "yes"
    assert time.monotonic() - started < 5
    assert len(begun) == 1
    gate.set()
    time.sleep(0.1)
    assert questions.run(5)["slow"] == "late 2", "what came too late is too old"


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        ParallelProbes({"wrong": lambda: 1 / 0}).run(5)
