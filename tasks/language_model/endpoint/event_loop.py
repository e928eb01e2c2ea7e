"""Event loop in a thread, which runs coroutines for the other threads of a process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoopThread:
    """A daemon thread with an event loop, started on creation."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="language-model", daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; cancelling the future cancels it. Raises RuntimeError once stopped."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise

    def stop(self) -> None:
        """Stop the loop and the thread, after the coroutines submitted before have started."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SharedEventLoop:
    """The single event loop thread of a process: its first user starts it, its last user stops it.

    A forked process starts its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: EventLoopThread | None = None
        self._users = 0
        self._watches_forks = False

    def acquire(self) -> EventLoopThread:
        """Return the running thread; every call needs a call of `release`."""
        with self._lock:
            if not self._watches_forks:
                os.register_at_fork(after_in_child=self._forget)
                self._watches_forks = True
            if self._thread is None:
                self._thread = EventLoopThread()
            self._users += 1
            return self._thread

    def release(self, thread: EventLoopThread) -> None:
        """End the use of a thread; a thread of a parent process is ignored."""
        with self._lock:
            if thread is not self._thread:
                return
            self._users -= 1
            if self._users:
                return
            self._thread = None
        thread.stop()

    def _forget(self) -> None:
        """Forget the parent's thread, which does not run in a forked process."""
        self._lock = threading.Lock()
        self._thread = None
        self._users = 0


SHARED_EVENT_LOOP = SharedEventLoop()
