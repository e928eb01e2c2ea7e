"""Records of commands, and of what else the user of this machine changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from config.errors import TransientError, UsageError
from config.settings import Settings
from workers.audit.log import AuditLog, Outcome, get_local_principal

RECORDED_HEADER = "Skillbus-Recorded"
"""Header of requests on the home's socket whose sender writes the record itself."""

_is_recording: ContextVar[bool] = ContextVar("is_recording", default=False)


def is_recording() -> bool:
    """Whether what is done now is recorded by a command."""
    return _is_recording.get()


def recorded_headers() -> dict[str, str]:
    """Headers for a request to `serve`, which leaves the record to the command."""
    return {RECORDED_HEADER: "1"} if is_recording() else {}


@contextmanager
def recorded(settings: Settings, action: str, name: str) -> Iterator[None]:
    """Record what is done inside as one change. name: of the object.

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
    """Record what is done inside as one change by the user of this machine.

    get_settings: called at the end; None where nothing was tried. get_outcome: of an exception.
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
    """Write a record. keep_error: what goes on is another error, which names the cause; that of the
    audit log is logged."""
    if settings is None:
        return
    try:
        AuditLog(settings).append(get_local_principal(), action, name, outcome)
    except TransientError:
        if not keep_error:
            raise


def get_outcome(error: BaseException) -> Outcome:
    """Return what an exception says about a change."""
    return "refused" if isinstance(error, UsageError) else "failed"
