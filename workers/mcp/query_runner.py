"""Runs a query for a client that receives progress and may cancel."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import anyio
import structlog

from config.errors import SkillbusError, TransientError
from config.tracing import untraced
from skills.access import Reader
from skills.events import QueryAsked
from workers.backend.protocol import Backend, QueryStatus

log = structlog.get_logger()

ORIGIN = "skillbus/mcp"

_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.003, 0.05
_POLL_SHARE = 0.1
"""Pause between two polls, as a share of the time since the query was submitted."""

T = TypeVar("T")

ProgressReporter = Callable[[int, int | None, str], Awaitable[None]]
"""Called with the number of stages started, their total once it is known, and the last stage."""


class ThreadRunner(Protocol):
    """Runs a blocking function in a thread."""

    async def __call__(self, function: Callable[[], T], abandon: bool = False) -> T:
        """Return the result of the function. abandon: a cancelled caller does
        not wait for its end."""
        ...


@dataclass(frozen=True, slots=True)
class QueryRunner:
    """Runs queries. seconds: time limit of a query."""

    run_in_thread: ThreadRunner
    seconds: float
    report_progress: ProgressReporter

    async def run(
        self, backend: Backend, request: QueryAsked, owner: str, reader: Reader
    ) -> QueryStatus:
        """Submit a query and return its final status; it is cancelled if the caller is.

        A query that ends while it is being cancelled counts as answered: its session
        counts the answer as sent.

        Raises UsageError for an invalid query, TransientError if there is no answer in time.
        """
        submit = partial(backend.submit_query, request, ORIGIN, owner, reader)
        query_id = await self.run_in_thread(submit)
        try:
            with untraced():
                return await self._poll_until_ended(backend, query_id)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.run_in_thread(partial(_cancel_query, backend, query_id))
            raise
        except SkillbusError:
            with anyio.CancelScope(shield=True):
                status = await self.run_in_thread(partial(_cancel_query, backend, query_id))
            if status is None or status.state != "done":
                raise
            return status

    async def _poll_until_ended(self, backend: Backend, query_id: str) -> QueryStatus:
        started_at, reported = time.monotonic(), 0
        await self.report_progress(0, None, "asked")
        while (passed := time.monotonic() - started_at) < self.seconds:
            status = await self.run_in_thread(partial(backend.get_query_status, query_id), True)
            if status.state != "accepted":
                await self.report_progress(reported + 1, reported + 1, _describe_end(status))
                return status
            for stage in status.stages[reported:]:
                reported += 1
                await self.report_progress(reported, None, stage)
            await anyio.sleep(min(max(passed * _POLL_SHARE, _MIN_POLL_SECONDS), _MAX_POLL_SECONDS))
        raise TransientError(
            f"no answer within {self.seconds:g} s; try again, or go on without a skill"
        )


def _cancel_query(backend: Backend, query_id: str) -> QueryStatus | None:
    """Cancel a query and return its status afterwards, None if the backend does not answer."""
    try:
        backend.cancel_query(query_id)
        return backend.get_query_status(query_id)
    except SkillbusError as error:  # it ends by its own deadline
        log.warning("query not cancelled", query_id=query_id, reason=str(error))
        return None


def _describe_end(status: QueryStatus) -> str:
    stages = (status.bundle or {}).get("timings_ms") or {}
    spent = ", ".join(f"{stage} {milliseconds:.0f} ms" for stage, milliseconds in stages.items())
    return f"{status.state}: {spent}" if spent else status.state
