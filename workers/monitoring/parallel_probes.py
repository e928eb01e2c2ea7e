"""Runs probes of several servers in parallel with one timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from config.errors import SkillbusError, TransientError

T = TypeVar("T")

Probe = Callable[[], T]


class ParallelProbes(Generic[T]):
    """Named probes, each run in a thread.

    If the timeout of a client is longer than that of `run`, its thread goes on, and the probe is
    not started again before it ends: there is at most one thread per probe.
    """

    def __init__(self, probes: Mapping[str, Probe[T]]) -> None:
        self._probes = dict(probes)
        self._lock = threading.Lock()
        self._pending: dict[str, Future[T]] = {}

    def run(self, timeout_seconds: float) -> dict[str, T | SkillbusError]:
        """Return the result of each probe, or the SkillbusError it raised.

        A probe without a result after `timeout_seconds` yields a TransientError. Any other
        exception of a probe is raised after all probes have ended or timed out.
        """
        with self._lock:
            # The result of a probe that ended after an earlier timeout is outdated.
            self._pending = {
                name: pending
                if (pending := self._pending.get(name)) is not None and not pending.done()
                else run_in_thread(probe, f"probe-{name}")
                for name, probe in self._probes.items()
            }
            futures = self._pending
        wait(futures.values(), timeout_seconds)
        results: dict[str, T | SkillbusError] = {}
        for name, future in futures.items():
            if not future.done():
                results[name] = TransientError(
                    f"{name} did not answer within {timeout_seconds:g} s"
                )
                continue
            try:
                results[name] = future.result()
            except SkillbusError as error:
                results[name] = error
        return results


def run_in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Return the future result of a function that runs in a thread of its own, which does not keep
    the process alive. A `ThreadPoolExecutor` would wait for a server at the exit."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # raised where the result is read
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
