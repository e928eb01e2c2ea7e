"""Waiting for the end of an event."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from config.errors import PermanentError, TransientError, UsageError
from config.tracing import untraced
from workers.backend.protocol import Backend


def wait_for_event(
    backend: Backend,
    event_id: str,
    *,
    poll_seconds: float,
    note: Callable[[str], None],
    is_complete: Callable[[], bool] = lambda: True,
    on_poll: Callable[[], None] = lambda: None,
    find_problem: Callable[[], str] | None = None,
    stalled_hint: str = "accepted changes are kept and will be processed",
) -> dict[str, Any]:
    """Wait until an event is done and `is_complete` holds, and return the outcome of the event.

    poll_seconds: the longest pause between two polls; the first pauses are shorter. on_poll: called
    at each poll. find_problem: used instead of the backend's `get_problem`. note: called once with
    what the work waits for, if it waits. Raises UsageError or PermanentError with the reason if the
    event failed, TransientError with the problem and `stalled_hint` if processing is stalled.
    """
    is_noted, pause = False, poll_seconds / 10
    while True:
        with untraced():
            status = backend.get_event_status(event_id)
            if status.state == "failed":
                kind = UsageError if status.outcome.get("usage") else PermanentError
                raise kind(status.reason)
            on_poll()
            if status.state == "done" and is_complete():
                return status.outcome
            if problem := (find_problem or backend.get_problem)():
                raise TransientError(f"{problem}; {stalled_hint}")
            if not is_noted and (reason := backend.get_wait_reason()):
                note(reason)
                is_noted = True
        time.sleep(pause)
        pause = min(1.2 * pause, poll_seconds)
