"""Having a query answered while the client is told how far it is, and may leave."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

import anyio
import structlog

from config.errors import SkillbusError, TransientError
from skills.events import QueryAsked
from workers.mcp.backends import QueryBackend, QueryStatus

log = structlog.get_logger()

_SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.003, 0.05
_WAIT_SHARE = 0.1
"""Of the time since the query was asked: so much later than its end it may be noticed."""

T = TypeVar("T")

ProgressReporter = Callable[[int, int | None, str], Awaitable[None]]
"""Takes how many stages were come to, how many there are once that is known, and the last one."""


class ThreadRunner(Protocol):
    """Calls what blocks."""

    async def __call__(self, function: Callable[[], T], abandon: bool = False) -> T:
        """What the function gives; `abandon`: whether to leave it in its thread when cancelled."""
        ...


class QueryRunner:
    """One query. seconds: how long it may take."""

    def __init__(
        self, run_in_thread: ThreadRunner, seconds: float, report_progress: ProgressReporter
    ) -> None:
        self._run_in_thread = run_in_thread
        self._seconds = seconds
        self._report_progress = report_progress

    async def run(self, backend: QueryBackend, request: QueryAsked, owner: str) -> QueryStatus:
        """How a query ended; whoever stops waiting has it cancelled.

        Raises UsageError for a wrong one, TransientError when there is no answer in time.
        """
        query_id = await self._run_in_thread(partial(backend.submit_query, request, owner))
        try:
            return await self._poll_until_ended(backend, query_id)
        except (anyio.get_cancelled_exc_class(), SkillbusError):
            with anyio.CancelScope(shield=True):
                await self._run_in_thread(partial(_cancel_query, backend, query_id))
            raise

    async def _poll_until_ended(self, backend: QueryBackend, query_id: str) -> QueryStatus:
        started_at, reported = time.monotonic(), 0
        await self._report_progress(0, None, "asked")
        while (passed := time.monotonic() - started_at) < self._seconds:
            status = await self._run_in_thread(partial(backend.get_query_status, query_id), True)
            if status.state != "accepted":
                await self._report_progress(reported + 1, reported + 1, _describe_end(status))
                return status
            for stage in status.stages[reported:]:
                reported += 1
                await self._report_progress(reported, None, stage)
            await anyio.sleep(
                min(max(passed * _WAIT_SHARE, _SHORTEST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)
            )
        raise TransientError(
            f"no answer within {self._seconds:g} s; try again, or go on without a skill"
        )


def _cancel_query(backend: QueryBackend, query_id: str) -> None:
    try:
        backend.cancel(query_id)
    except SkillbusError as error:  # it ends on its own, within its time
        log.warning("query not cancelled", query_id=query_id, reason=str(error))


def _describe_end(status: QueryStatus) -> str:
    stages = (status.bundle or {}).get("timings_ms") or {}
    spent = ", ".join(f"{stage} {milliseconds:.0f} ms" for stage, milliseconds in stages.items())
    return f"{status.state}: {spent}" if spent else status.state
