"""What a task of a given name does: its function, and what follows its failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.policies import Deadline, TaskPolicy
from tasks.services import Services

TaskFunction = Callable[[Services, Deadline, Sequence[str]], dict[str, object]]
"""Runs a task for these ids; the result is logged, and sent back where the sender asked for it."""

FailureHandler = Callable[[Services, Sequence[str], BaseException], None]
"""Called once with the ids and the error, when a task has failed for good."""


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task: its policy, its function, and its place in the flow.

    ids: what the ids in its messages name. sends: the tasks that it sends. before_retry: called
    before every retry, for a task that counts itself as ended whenever its function returns or
    raises.
    """

    policy: TaskPolicy
    run: TaskFunction
    ids: str
    sends: tuple[TaskPolicy, ...] = ()
    on_failure: FailureHandler | None = None
    before_retry: Callable[[Services], int] | None = None
