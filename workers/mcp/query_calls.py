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
from workers.mcp.ways import Standing, Way

log = structlog.get_logger()

_SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.003, 0.05
_WAIT_SHARE = 0.1
"""Of the time since the query was asked: so much later than its end it may be noticed."""

T = TypeVar("T")

Teller = Callable[[int, int | None, str], Awaitable[None]]
"""Takes how many stages were come to, how many there are once that is known, and the last one."""


class InThread(Protocol):
    """Calls what blocks."""

    async def __call__(self, function: Callable[[], T], abandon: bool = False) -> T:
        """What the function gives; `abandon`: whether to leave it in its thread when cancelled."""
        ...


class Asking:
    """One query. seconds: how long it may take."""

    def __init__(self, in_thread: InThread, seconds: float, tell: Teller) -> None:
        self._in_thread = in_thread
        self._seconds = seconds
        self._tell = tell

    async def answer(self, way: Way, asked: QueryAsked, owner: str) -> Standing:
        """How a query ended; whoever stops waiting has it cancelled.

        Raises UsageError for a wrong one, TransientError when there is no answer in time.
        """
        query_id = await self._in_thread(partial(way.ask, asked, owner))
        try:
            return await self._watch(way, query_id)
        except (anyio.get_cancelled_exc_class(), SkillbusError):
            with anyio.CancelScope(shield=True):
                await self._in_thread(partial(_give_up, way, query_id))
            raise

    async def _watch(self, way: Way, query_id: str) -> Standing:
        begun, told = time.monotonic(), 0
        await self._tell(0, None, "asked")
        while (passed := time.monotonic() - begun) < self._seconds:
            standing = await self._in_thread(partial(way.look, query_id), True)
            if standing.state != "accepted":
                await self._tell(told + 1, told + 1, _ended(standing))
                return standing
            for stage in standing.stages[told:]:
                told += 1
                await self._tell(told, None, stage)
            await anyio.sleep(
                min(max(passed * _WAIT_SHARE, _SHORTEST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)
            )
        raise TransientError(
            f"no answer within {self._seconds:g} s; try again, or go on without a skill"
        )


def _give_up(way: Way, query_id: str) -> None:
    try:
        way.cancel(query_id)
    except SkillbusError as error:  # it ends on its own, within its time
        log.warning("query not cancelled", query_id=query_id, reason=str(error))


def _ended(standing: Standing) -> str:
    stages = (standing.bundle or {}).get("timings_ms") or {}
    spent = ", ".join(f"{stage} {milliseconds:.0f} ms" for stage, milliseconds in stages.items())
    return f"{standing.state}: {spent}" if spent else standing.state
