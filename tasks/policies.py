"""Every task's name, queue, limits and retries, in one place."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from config.errors import TransientError

INGEST_QUEUE = "skillbus.ingest"
PAGE_QUEUE = "skillbus.page"
LINK_QUEUE = "skillbus.link"
QUERY_QUEUE = "skillbus.query"
PLAN_QUEUE = "skillbus.plan"
FETCH_QUEUE = "skillbus.fetch"
MAINTAIN_QUEUE = "skillbus.maintain"

_GRACE_SECONDS = 30.0
_LONGEST_DELAY_SECONDS = 4.0
"""A server that is back should not find everyone asleep."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How a kind of task is run.

    seconds: its time limit; stages check it as a deadline, since Celery enforces no limit on
    threads. retries: how often a TransientError is tried again, with exponential backoff from
    `backoff` seconds and full jitter. attempts: how often it is begun when its worker dies each
    time. deepest: messages in its queue from which on no more are sent, where the catalog or the
    journal holds the work as well.
    """

    name: str
    queue: str
    seconds: float
    retries: int = 0
    backoff: float = 0.5
    attempts: int = 3
    deepest: int | None = None

    @property
    def hard_limit(self) -> float:
        """Seconds after which a process that runs it is ended, whatever it does."""
        return 2 * self.seconds + _GRACE_SECONDS

    def __post_init__(self) -> None:
        """Refuse policies that contradict themselves."""
        if self.seconds <= 0 or self.retries < 0 or self.backoff < 0:
            raise ValueError(f"{self.name}: limits must be positive")

    def delay(self, attempt: int) -> float:
        """Seconds to wait before retry number `attempt` (from 0)."""
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, hides nothing
        return jitter * min(self.backoff * 2.0**attempt, _LONGEST_DELAY_SECONDS)


# One plan takes all open events along, and one link all that is marked: few need to wait.
PLAN = Policy("skillbus.plan", PLAN_QUEUE, seconds=600, retries=5, deepest=16)
# One fetch takes all open events of git sources along; where hosts are slow, nothing waits behind.
FETCH = Policy("skillbus.fetch", FETCH_QUEUE, seconds=600, retries=5, deepest=16)
INGEST = Policy("skillbus.ingest", INGEST_QUEUE, seconds=300, retries=5, deepest=5_000)
PAGE = Policy("skillbus.page", PAGE_QUEUE, seconds=300, retries=5, deepest=5_000)
LINK = Policy("skillbus.link", LINK_QUEUE, seconds=120, retries=5, deepest=1)
MAINTAIN = Policy("skillbus.maintain", MAINTAIN_QUEUE, seconds=120, deepest=1)
QUERY = Policy("skillbus.query", QUERY_QUEUE, seconds=30, retries=2, backoff=0.05)

POLICIES = {policy.name: policy for policy in (PLAN, FETCH, INGEST, PAGE, LINK, MAINTAIN, QUERY)}


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
