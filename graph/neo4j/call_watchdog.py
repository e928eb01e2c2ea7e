"""Time limit for calls to a server that has stopped answering.

The driver waits for a frozen server as long as the server's own hint says (two minutes by default)
and has no setting for it. Overdue calls are ended by closing their connections.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class WatchedCall:
    """A watched call. `expired` is set when it is aborted."""

    __slots__ = ("due", "expired")

    def __init__(self, due: float) -> None:
        self.due = due
        self.expired = False


class CallWatchdog:
    """Watches calls in flight, with a thread that aborts all of them when one is overdue."""

    def __init__(self, abort_calls: Callable[[], None]) -> None:
        """abort_calls: ends all calls in flight; called from the thread."""
        self._abort_calls = abort_calls
        self._changed = threading.Condition()
        self._calls: set[WatchedCall] = set()
        self._thread: threading.Thread | None = None
        self._idle = False
        self._closed = False

    def start_call(self, seconds: float) -> WatchedCall:
        """Start watching a call; `finish_call` must follow."""
        call = WatchedCall(time.monotonic() + seconds)
        with self._changed:
            self._calls.add(call)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True, name="neo4j-watch")
                self._thread.start()
            elif self._idle:
                self._changed.notify()
        return call

    def finish_call(self, call: WatchedCall) -> None:
        """Stop watching a call, after it returned or raised."""
        with self._changed:
            self._calls.discard(call)

    def close(self) -> None:
        """End the thread once no call is in flight."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        # No notification for calls added while the thread sleeps: it wakes before most are due.
        while True:
            with self._changed:
                if not self._calls:
                    if self._closed:
                        return
                    self._idle = True
                    self._changed.wait()
                    self._idle = False
                    continue
                now = time.monotonic()
                next_due = min(call.due for call in self._calls)
                if next_due > now:
                    self._changed.wait(min(next_due - now, _MAX_SLEEP_SECONDS))
                    continue
                for call in self._calls:
                    call.expired = call.expired or call.due <= now
                self._calls = {call for call in self._calls if not call.expired}
            self._abort_calls()


_MAX_SLEEP_SECONDS = 1.0
"""Maximum sleep, since a short call may be added while the thread waits for a long one."""
