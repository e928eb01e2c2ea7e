"""Submission of an event by a command, which waits for its outcome."""

from __future__ import annotations

from typing import Any

from config.settings import Settings
from skills.events import SkillRemoved, SourceRemoved
from workers.backend.factory import open_backend
from workers.backend.waiting import wait_for_event
from workers.cli.common import ORIGIN, print_to_stderr

_POLL_SECONDS = 0.05


def submit_and_wait(settings: Settings, data: SkillRemoved | SourceRemoved) -> dict[str, Any]:
    """Submit an event, wait until it is done and return its outcome.

    Raises PermanentError with the reason if it failed, TransientError if processing is stalled.
    """
    with open_backend(settings, writable=True, embeds="nothing") as backend:
        event_id = backend.submit(data, ORIGIN)
        outcome = wait_for_event(
            backend, event_id, poll_seconds=_POLL_SECONDS, note=print_to_stderr
        )
        backend.wait_until_linked()
        return outcome
