"""Audit records of commands, and of other changes by the user of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from config.errors import PermanentError, UsageError
from config.settings import Settings
from workers.audit.log import AuditLog, Outcome, get_local_principal

RECORDED_HEADER = "Skillbus-Recorded"
"""Header of requests on the home's socket for which the sender writes the audit record."""

_is_recording: ContextVar[bool] = ContextVar("is_recording", default=False)


def is_recording() -> bool:
    """Return whether a command records the changes that are made now."""
    return _is_recording.get()


def recorded_headers() -> dict[str, str]:
    """Return headers for requests to `serve` that leave the audit record to the command."""
    return {RECORDED_HEADER: "1"} if is_recording() else {}


@contextmanager
def recorded(settings: Settings, action: str, name: str) -> Iterator[None]:
    """Record the work done inside the context as one change. name: of the object.

    Raises MisconfiguredError before anything is done if it could not be recorded.
    """
    AuditLog(settings).check()
    with recording(action, name, lambda: settings, get_outcome):
        yield


@contextmanager
def recording(
    action: str,
    name: str,
    get_settings: Callable[[], Settings | None],
    get_outcome: Callable[[BaseException], Outcome],
) -> Iterator[None]:
    """Record the work done inside the context as one change by the user of this machine.

    get_settings: called at the end; returns None if nothing was tried. get_outcome: returns the
    outcome for an exception.
    """
    token = _is_recording.set(True)
    outcome: Outcome = "done"
    try:
        yield
    except BaseException as error:
        outcome = get_outcome(error)
        _append(get_settings(), action, name, outcome, keep_error=True)
        raise
    else:
        _append(get_settings(), action, name, outcome)
    finally:
        _is_recording.reset(token)


def _append(
    settings: Settings | None, action: str, name: str, outcome: Outcome, keep_error: bool = False
) -> None:
    """Write a record, if there are settings.

    keep_error: another error is raised afterwards, so a failure to write is only logged.
    """
    if settings is None:
        return
    try:
        AuditLog(settings).append(get_local_principal(), action, name, outcome)
    except PermanentError:
        if not keep_error:
            raise


def get_outcome(error: BaseException) -> Outcome:
    """Return the outcome of a change that raised an exception."""
    return "refused" if isinstance(error, UsageError) else "failed"
