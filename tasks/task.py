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
    """A task: its policy, its function, and its place in the flow.

    ids: what the ids in its messages are. sends: the tasks that it sends. before_retry: called
    before every retry, for a task that counts itself as ended whenever its function returns or
    raises.
    """

    policy: TaskPolicy
    run: TaskFunction
    ids: str
    sends: tuple[TaskPolicy, ...] = ()
    on_failure: FailureHandler | None = None
    before_retry: Callable[[Services], int] | None = None
