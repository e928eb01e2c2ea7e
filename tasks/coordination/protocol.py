"""Protocol of the coordinator: counts, locks and heartbeats shared by the tasks of a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from config.tracing import NO_CONTEXT, TraceContext

MAX_YIELD_SECONDS = 0.25
"""Longest wait of `yield_to_queries`."""


class StalledTask(NamedTuple):
    """A task whose process died, or that ran far beyond its time limit.

    trace_id, context: of the event that led to it.
    """

    task: str
    ids: tuple[str, ...]
    trace_id: str
    context: TraceContext = NO_CONTEXT


class IngestRequest(NamedTuple):
    """A change that waits for ingest, with the trace of its event.

    since: when the wait began, in seconds since the epoch.
    """

    trace_id: str
    since: float
    traceparent: str = ""
    tracestate: str = ""

    @property
    def context(self) -> TraceContext:
        """Trace context of the span in which the change was planned."""
        return TraceContext(self.traceparent, self.tracestate)


class Coordinator(Protocol):
    """State shared by the tasks of a deployment.

    LocalCoordinator keeps it for one process with threads, RedisCoordinator for many workers.
    """

    task_error: str
    """Reason why a task last gave up, "" if none did; the reconciler then resends the waiting
    work."""

    def count_pending(self, task: str) -> int:
        """Return the number of tasks of this name that run or wait."""
        ...

    def add_pending(self, task: str, count: int) -> int:
        """Add `count` (negative: subtract) to the pending tasks of a name; returns the new number.

        Called when tasks are sent, with -1 by the task itself when it is done, and with 1 when it
        is tried again.
        """
        ...

    def pause(self, name: str, reason: str, seconds: float) -> None:
        """Pause the work `name` for `seconds`; `get_pause` then returns the reason."""
        ...

    def get_pause(self, name: str) -> str:
        """Return why the work `name` is paused, "" if it is not."""
        ...

    def find_paused(self, names: Sequence[str]) -> set[str]:
        """Return the names of these whose work is paused."""
        ...

    def track_query(self) -> AbstractContextManager[None]:
        """Count a query as running inside the block; `yield_to_queries` waits for it."""
        ...

    def yield_to_queries(self) -> None:
        """Wait while queries run, at most `MAX_YIELD_SECONDS`; called by bulk work."""
        ...

    def try_lock(self, name: str) -> AbstractContextManager[bool]:
        """Take the lock `name` for the block without waiting; yields whether it was taken.

        On False the caller must leave the work to the holder. The lock of a holder that died is
        taken over.
        """
        ...

    def claim_if_due(self, name: str, seconds: float) -> bool:
        """Return True if `name` has not run for `seconds`; the caller must then run it.

        Of several callers, only one gets True.
        """
        ...

    def start_task(self, task: str, task_id: str, ids: Sequence[str]) -> int:
        """Record that a task runs in this process, until `finish_task`.

        task: its name in `tasks.policies`. task_id: id of its message. ids: its arguments. Returns
        the number of this attempt, from 1; earlier attempts whose process died count. The caller
        must not run a task that has used up its attempts.
        """
        ...

    def finish_task(self, task: str, task_id: str, ids: Sequence[str]) -> None:
        """Record that a task ended, with or without an error; resets its count of attempts."""
        ...

    def get_stalled_tasks(self) -> list[StalledTask]:
        """Take over started tasks whose process died; the caller must send them again.

        Each task is returned only once, to one caller.
        """
        ...

    def record_ingest_request(self, seq: int, trace_id: str, since: float) -> None:
        """Store for a while that the change with sequence number `seq` waits for ingest.

        since: when its event was accepted, in seconds since the epoch.
        """
        ...

    def get_ingest_requests(self, seqs: Sequence[int]) -> dict[int, IngestRequest]:
        """Return sequence number -> stored request; unknown numbers are left out."""
        ...
