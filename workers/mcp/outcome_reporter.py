"""Reports an outcome for a client, and waits until it is stored."""

from __future__ import annotations

import time
from functools import partial

import anyio

from config.tracing import untraced
from skills.access import Reader
from skills.events import OutcomesReported, new_event, replace_origin
from workers.backend.protocol import Backend, EventStatus
from workers.mcp.query_runner import ORIGIN, ThreadRunner

_WAIT_SECONDS, _POLL_SECONDS = 5.0, 0.02


async def report_and_wait(
    run_in_thread: ThreadRunner,
    backend: Backend,
    report: OutcomesReported,
    owner: str,
    reader: Reader,
) -> EventStatus:
    """Submit a report and return its last status: `accepted` if it is not stored in time.

    The report is recorded durably by then. Raises TransientError if too many events are open.
    """
    event = replace_origin(new_event(report, ORIGIN), owner, reader)
    with anyio.CancelScope(shield=True):  # what is audited as a report has been recorded
        event_id = await run_in_thread(partial(backend.accept, event))
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        with untraced():
            look = partial(backend.get_event_status, event_id)
            status = await run_in_thread(look, True)
        if status.state != "accepted" or time.monotonic() > end:
            return status
        await anyio.sleep(_POLL_SECONDS)
