"""Definition of a task by name: its function, and its handler of failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.policies import Deadline, TaskPolicy
from tasks.services import Services

TaskFunction = Callable[[Services, Deadline, Sequence[str]], dict[str, object]]
"""Function that runs a task for these ids; the result is logged, and returned to the sender on
request."""

FailureHandler = Callable[[Services, Sequence[str], BaseException], None]
"""Function called once with the ids and the error, when a task has failed permanently."""


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task: its policy, its function, and its handler of failures.

    counts_itself: its function counts it as ended, whenever it returns or raises; so it is counted
    as pending again before a retry.
    """

    policy: TaskPolicy
    run: TaskFunction
    on_failure: FailureHandler | None = None
    counts_itself: bool = False
