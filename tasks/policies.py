"""Name, queue, time limit and retries of every task."""

from __future__ import annotations

import time
from dataclasses import dataclass

from config.backoff import Backoff
from config.errors import PermanentError, TransientError

INGEST_QUEUE = "skillbus.ingest"
EMBED_SKILLS_QUEUE = "skillbus.embed_skills"
EMBED_SECTIONS_QUEUE = "skillbus.embed_sections"
LINK_QUEUE = "skillbus.link"
QUERY_QUEUE = "skillbus.query"
PLAN_QUEUE = "skillbus.plan"
FETCH_QUEUE = "skillbus.fetch"
MAINTAIN_QUEUE = "skillbus.maintain"
REFINE_QUEUE = "skillbus.refine"
OUTCOMES_QUEUE = "skillbus.outcomes"

FORMER_NAMES = {"skillbus.page": EMBED_SECTIONS_QUEUE}
"""Names that a task and its queue had in version 0.1, still accepted in this version."""

_HARD_LIMIT_GRACE_SECONDS = 30.0
_MAX_RETRY_PAUSE_SECONDS = 4.0
"""Short, so that work resumes soon after a server is back."""


@dataclass(frozen=True, slots=True)
class TaskPolicy:
    """Rules for running a task.

    time_limit: seconds. Stages check it as a deadline, since Celery enforces no limit on threads.
    max_retries: retries after a TransientError, with exponential backoff from `retry_backoff`
    seconds and jitter. max_deliveries: maximum starts of the task if its worker dies each time.
    max_queue_length: no more messages are sent once the queue has this many; the catalog or the
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
        """Seconds after which the process that runs the task is killed."""
        return 2 * self.time_limit + _HARD_LIMIT_GRACE_SECONDS

    def __post_init__(self) -> None:
        """Raise ValueError for limits that are not positive."""
        if self.time_limit <= 0 or self.max_retries < 0 or self.retry_backoff < 0:
            raise ValueError(f"{self.name}: limits must be positive")

    def make_backoff(self) -> Backoff:
        """Return the pauses between the retries of one run."""
        return Backoff(self.retry_backoff, _MAX_RETRY_PAUSE_SECONDS)


# One plan handles all open events, and one link all marked skills, so few messages need to wait.
PLAN = TaskPolicy("skillbus.plan", PLAN_QUEUE, time_limit=600, max_retries=5, max_queue_length=16)
# One fetch handles all open events of git sources. It has its own queue, since hosts are slow.
FETCH = TaskPolicy(
    "skillbus.fetch", FETCH_QUEUE, time_limit=600, max_retries=5, max_queue_length=16
)
INGEST = TaskPolicy(
    "skillbus.ingest", INGEST_QUEUE, time_limit=300, max_retries=5, max_queue_length=5_000
)
EMBED_SKILLS = TaskPolicy(
    "skillbus.embed_skills",
    EMBED_SKILLS_QUEUE,
    time_limit=300,
    max_retries=5,
    max_queue_length=5_000,
)
EMBED_SECTIONS = TaskPolicy(
    "skillbus.embed_sections",
    EMBED_SECTIONS_QUEUE,
    time_limit=300,
    max_retries=5,
    max_queue_length=5_000,
)
# A task stops at its time limit and sends the rest of its batch; a language model is slow.
REFINE = TaskPolicy(
    "skillbus.refine", REFINE_QUEUE, time_limit=600, max_retries=5, max_queue_length=5_000
)
LINK = TaskPolicy("skillbus.link", LINK_QUEUE, time_limit=120, max_retries=5, max_queue_length=1)
MAINTAIN = TaskPolicy("skillbus.maintain", MAINTAIN_QUEUE, time_limit=120, max_queue_length=1)
# One task stores the outcomes of one event; ROLL_UP counts the usage that they change.
RECORD_OUTCOMES = TaskPolicy(
    "skillbus.record_outcomes", OUTCOMES_QUEUE, time_limit=60, max_retries=5, max_queue_length=5_000
)
ROLL_UP = TaskPolicy("skillbus.roll_up", OUTCOMES_QUEUE, time_limit=600, max_queue_length=5_000)
QUERY = TaskPolicy("skillbus.query", QUERY_QUEUE, time_limit=30, max_retries=2, retry_backoff=0.05)

POLICIES = {
    policy.name: policy
    for policy in (
        PLAN,
        FETCH,
        INGEST,
        EMBED_SKILLS,
        EMBED_SECTIONS,
        REFINE,
        LINK,
        MAINTAIN,
        RECORD_OUTCOMES,
        ROLL_UP,
        QUERY,
    )
}


def resolve_task_name(name: str) -> str:
    """Return the present name of a task; `name` is its present or a former name."""
    return FORMER_NAMES.get(name, name)


class DeadlineExceededError(TransientError):
    """The task ran longer than its policy allows."""


class PoisonTaskError(PermanentError):
    """The task's worker died or hung each time that it ran."""


class Deadline:
    """The time limit of a running task; stages call `check` between units of work."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Return the seconds left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    def check(self, stage: str) -> None:
        """Raise DeadlineExceededError, naming the stage, when no time is left."""
        if self.remaining() == 0.0:
            raise DeadlineExceededError(f"{stage}: not done within {self._seconds:g} s")
