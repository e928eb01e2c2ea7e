"""Waiting for the end of jobs: one poll of the journal serves all waiting requests."""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool

from config.errors import SkillbusError
from config.tracing import untraced
from tasks.journal.protocol import JobStore

_POLL_SECONDS = 0.003
_RETRY_SECONDS = 0.5


class JobWaiter:
    """Waits for jobs to end; for one event loop."""

    def __init__(self, job_store: JobStore) -> None:
        self._job_store = job_store
        self._futures: dict[str, set[asyncio.Future[None]]] = {}
        self._poll_task: asyncio.Task[None] | None = None

    async def wait_until_ended(self, job_id: str, timeout_seconds: float) -> bool:
        """Wait until a job has ended; return False if it has not within `timeout_seconds`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(job_id, set()).add(future)
        if self._poll_task is None:
            with untraced():  # the task keeps this context, and serves other requests too
                self._poll_task = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(timeout_seconds):
                await future
        except TimeoutError:
            return False
        finally:
            self._forget(job_id, future)
        return True

    def _forget(self, job_id: str, future: asyncio.Future[None]) -> None:
        others = self._futures.get(job_id, set())
        others.discard(future)
        if not others:
            self._futures.pop(job_id, None)

    async def _poll(self) -> None:
        """Poll the journal while requests wait; a deleted job counts as ended."""
        try:
            while self._futures:
                ids = list(self._futures)
                try:
                    states = await run_in_threadpool(self._job_store.get_job_states, ids)
                except SkillbusError:
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                for one in ids:
                    if states.get(one, ("", ""))[0] != "accepted":
                        for future in self._futures.pop(one, ()):
                            if not future.done():
                                future.set_result(None)
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            self._poll_task = None
