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
            futures = {name: self._start(name) for name in self._probes}
        wait(futures.values(), timeout_seconds)
        return {
            name: self._result(name, future, timeout_seconds) for name, future in futures.items()
        }

    def _start(self, name: str) -> Future[T]:
        # The result of a probe that ended after an earlier timeout is outdated: start it again.
        if name in self._pending and not self._pending[name].done():
            return self._pending[name]
        future: Future[T] = Future()
        self._pending[name] = future
        threading.Thread(
            target=_run, args=(future, self._probes[name]), name=f"probe-{name}", daemon=True
        ).start()
        return future

    def _result(self, name: str, future: Future[T], timeout_seconds: float) -> T | SkillbusError:
        if not future.done():
            return TransientError(f"{name} did not answer within {timeout_seconds:g} s")
        with self._lock:
            if self._pending.get(name) is future:
                del self._pending[name]
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, SkillbusError):
            return error
        raise error


def _run(future: Future[T], probe: Probe[T]) -> None:
    try:
        future.set_result(probe())
    except BaseException as error:  # raised in the thread that called `run`
        future.set_exception(error)
