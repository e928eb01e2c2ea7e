"""Questions to servers, asked side by side, none of which can hold up the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from config.errors import SkillbusError, TransientError

T = TypeVar("T")

Probe = Callable[[], T]


class ParallelProbes(Generic[T]):
    """Each is asked in a thread of its own; one that is still out is not asked once more.

    A client's patience with a server that hangs may be longer than that of who asks. So threads
    that wait are left behind, but never more than one for each question.
    """

    def __init__(self, probes: Mapping[str, Probe[T]]) -> None:
        self._probes = dict(probes)
        self._lock = threading.Lock()
        self._pending: dict[str, Future[T]] = {}

    def run(self, timeout_seconds: float) -> dict[str, T | SkillbusError]:
        """The answer to each question, or the error in its place, within `seconds`.

        An error that is not ours is raised once all have answered.
        """
        with self._lock:
            futures = {name: self._begin(name) for name in self._probes}
        wait(futures.values(), timeout_seconds)
        return {
            name: self._answer(name, future, timeout_seconds) for name, future in futures.items()
        }

    def _begin(self, name: str) -> Future[T]:
        # What came too late for who asked then is too old for who asks now.
        if name in self._pending and not self._pending[name].done():
            return self._pending[name]
        future: Future[T] = Future()
        self._pending[name] = future
        threading.Thread(
            target=_answer, args=(future, self._probes[name]), name=f"ask-{name}", daemon=True
        ).start()
        return future

    def _answer(self, name: str, future: Future[T], timeout_seconds: float) -> T | SkillbusError:
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


def _answer(future: Future[T], probe: Probe[T]) -> None:
    try:
        future.set_result(probe())
    except BaseException as error:  # who asked gets it, whatever it is
        future.set_exception(error)
