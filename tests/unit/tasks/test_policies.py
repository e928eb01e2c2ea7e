"""Policies: one per task, and deadlines that stages check."""

from __future__ import annotations

import time
from typing import Any

import pytest

from config.errors import TransientError
from tasks.policies import (
    INGEST,
    POLICIES,
    RECORD_OUTCOMES,
    ROLL_UP,
    Deadline,
    DeadlineExceededError,
    TaskPolicy,
)


def test_every_task_has_its_own_name_and_queue() -> None:
    assert len(POLICIES) == 11
    assert all(name == policy.name for name, policy in POLICIES.items())
    queues = [policy.queue for policy in POLICIES.values() if policy is not ROLL_UP]
    assert len(set(queues)) == len(queues)
    # What outcomes change is counted where they are stored.
    assert ROLL_UP.queue == RECORD_OUTCOMES.queue


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_limit": 0},
        {"time_limit": -1},
        {"time_limit": 1, "max_retries": -1},
        {"time_limit": 1, "retry_backoff": -1},
    ],
)
def test_contradictions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="test"):
        TaskPolicy("test", "queue", **wrong)


def test_pauses_between_retries_double_within_their_jitter_up_to_some_seconds() -> None:
    for _ in range(50):
        backoff = INGEST.make_backoff()
        for attempt in range(6):
            most = min(INGEST.retry_backoff * 2**attempt, 4.0)
            assert most / 2 <= backoff.pause() <= most


def test_a_deadline_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deadline = Deadline(0.02)
    deadline.check("early")
    assert deadline.remaining() == pytest.approx(0.02)
    now[0] += 0.03
    assert deadline.remaining() == 0.0
    with pytest.raises(DeadlineExceededError, match=r"embed: not done within 0\.02 s"):
        deadline.check("embed")


def test_a_missed_deadline_is_tried_again() -> None:
    assert issubclass(DeadlineExceededError, TransientError)
