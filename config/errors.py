"""The error hierarchy. Adapters translate the errors of their client libraries into these.

Every error is of exactly one kind: `TransientError` (the work is retried), `PermanentError` (it is
recorded as failed) or `StaleError` (it counts as done). Each class has one base class, so the order
of `except` clauses does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SkillbusError(Exception):
    """Base class of all errors that skillbus raises on purpose.

    The message states the problem and what to do about it; it is for logs and the local user, and
    may name servers and files. public_message: text for remote callers (HTTP, MCP, queues); by
    default the message.
    """

    def __init__(self, message: str = "", *, public_message: str = "") -> None:
        super().__init__(message)
        self.public_message = public_message or message


class TransientError(SkillbusError):
    """An error that may pass without intervention, such as a busy store or a missed deadline.

    A task is retried; the recorded work waits.
    """


class PermanentError(SkillbusError):
    """An error that a retry cannot fix: the event, query or skill is recorded as failed."""


class StaleError(SkillbusError):
    """A newer revision was already written: the work counts as done, and nothing is written."""


class MisconfiguredError(TransientError):
    """A setting does not fit the environment: a login, address, model, version or program.

    Recorded work waits until an operator has corrected it; a query or a command fails at once
    (exit code 2, HTTP 503).
    """

    def __init__(
        self,
        message: str = "",
        *,
        public_message: str = "a setting of this deployment is wrong; the server's log says which",
    ) -> None:
        super().__init__(message, public_message=public_message)


class UsageError(PermanentError):
    """The caller requested something impossible (exit code 2, HTTP 400)."""


class NothingToDoError(UsageError):
    """What the caller requested is done already (exit code 2)."""


class NotFoundError(UsageError):
    """The caller named something that does not exist (exit code 2, HTTP 404)."""


@contextmanager
def transient_disk_errors(what: str, public_message: str = "") -> Iterator[None]:
    """Raise disk errors of the `with` block as TransientError: the work can be tried again.

    what: start of the message, such as "PATH cannot be written". public_message: text for remote
    callers, by default the message.
    """
    try:
        yield
    except OSError as error:
        message = f"{what}: {error.strerror}"
        raise TransientError(message, public_message=public_message) from error
