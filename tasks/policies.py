"""Every task's name, queue, limits and retries, in one place."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from config.errors import TransientError

INGEST_QUEUE = "skillbus.ingest"
EMBED_SECTIONS_QUEUE = "skillbus.page"
LINK_QUEUE = "skillbus.link"
QUERY_QUEUE = "skillbus.query"
PLAN_QUEUE = "skillbus.plan"
FETCH_QUEUE = "skillbus.fetch"
MAINTAIN_QUEUE = "skillbus.maintain"

_GRACE_SECONDS = 30.0
_LONGEST_DELAY_SECONDS = 4.0
"""A server that is back should not find everyone asleep."""


@dataclass(frozen=True, slots=True)
class TaskPolicy:
    """How a kind of task is run.

    seconds: its time limit; stages check it as a deadline, since Celery enforces no limit on
    threads. retries: how often a TransientError is tried again, with exponential backoff from
    `backoff` seconds and full jitter. attempts: how often it is begun when its worker dies each
    time. deepest: messages in its queue from which on no more are sent, where the catalog or the
    journal holds the work as well.
    """

    name: str
    queue: str
    time_limit: float
    max_retries: int = 0
    retry_backoff: float = 0.5
    max_deliveries: int = 3
    max_queue_length: int | None = None

    @property
    def hard_time_limit(self) -> float:
        """Seconds after which a process that runs it is ended, whatever it does."""
        return 2 * self.time_limit + _GRACE_SECONDS

    def __post_init__(self) -> None:
        """Refuse policies that contradict themselves."""
        if self.time_limit <= 0 or self.max_retries < 0 or self.retry_backoff < 0:
            raise ValueError(f"{self.name}: limits must be positive")

    def retry_delay(self, attempt: int) -> float:
        """Seconds to wait before retry number `attempt` (from 0)."""
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, hides nothing
        return jitter * min(self.retry_backoff * 2.0**attempt, _LONGEST_DELAY_SECONDS)


# One plan takes all open events along, and one link all that is marked: few need to wait.
PLAN = TaskPolicy("skillbus.plan", PLAN_QUEUE, time_limit=600, max_retries=5, max_queue_length=16)
# One fetch takes all open events of git sources along; where hosts are slow, nothing waits behind.
FETCH = TaskPolicy(
    "skillbus.fetch", FETCH_QUEUE, time_limit=600, max_retries=5, max_queue_length=16
)
INGEST = TaskPolicy(
    "skillbus.ingest", INGEST_QUEUE, time_limit=300, max_retries=5, max_queue_length=5_000
)
EMBED_SECTIONS = TaskPolicy(
    "skillbus.page", EMBED_SECTIONS_QUEUE, time_limit=300, max_retries=5, max_queue_length=5_000
)
LINK = TaskPolicy("skillbus.link", LINK_QUEUE, time_limit=120, max_retries=5, max_queue_length=1)
MAINTAIN = TaskPolicy("skillbus.maintain", MAINTAIN_QUEUE, time_limit=120, max_queue_length=1)
QUERY = TaskPolicy("skillbus.query", QUERY_QUEUE, time_limit=30, max_retries=2, retry_backoff=0.05)

POLICIES = {
    policy.name: policy for policy in (PLAN, FETCH, INGEST, EMBED_SECTIONS, LINK, MAINTAIN, QUERY)
}


class DeadlineExceededError(TransientError):
    """The task ran longer than its policy allows."""


class Deadline:
    """The end of a task's time; stages call `check` between units of work."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    def check(self, stage: str) -> None:
        """Raise DeadlineExceededError when the time is over."""
        if self.remaining() == 0.0:
            raise DeadlineExceededError(f"{stage}: not done within {self._seconds:g} s")
