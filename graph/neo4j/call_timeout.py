"""A limit on calls to a server that no longer answers.

The driver waits for a frozen server as long as that server once asked it to (two minutes by
default), and has no setting for it: whoever waits longer than it should is freed by closing the
connections under it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class WatchedCall:
    """One call being watched. `expired` is set once it was given up."""

    __slots__ = ("due", "expired")

    def __init__(self, due: float) -> None:
        self.due = due
        self.expired = False


class CallWatchdog:
    """Calls in flight, and a thread that gives up those which are overdue."""

    def __init__(self, abort_calls: Callable[[], None]) -> None:
        """give_up: frees every call in flight; called from the thread, once a time."""
        self._abort_calls = abort_calls
        self._changed = threading.Condition()
        self._calls: set[WatchedCall] = set()
        self._thread: threading.Thread | None = None
        self._idle = False

    def start_call(self, seconds: float) -> WatchedCall:
        """Watch a call from now on; `end` must follow."""
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
        """The call returned, in whatever way."""
        with self._changed:
            self._calls.discard(call)

    def _run(self) -> None:
        # Calls that come while the thread sleeps are mostly due after it wakes: it looks then.
        while True:
            with self._changed:
                if not self._calls:
                    self._idle = True
                    self._changed.wait()
                    self._idle = False
                    continue
                now = time.monotonic()
                next_due = min(call.due for call in self._calls)
                if next_due > now:
                    self._changed.wait(min(next_due - now, _LOOK_SECONDS))
                    continue
                for call in self._calls:
                    call.expired = call.expired or call.due <= now
                self._calls = {call for call in self._calls if not call.expired}
            self._abort_calls()


_LOOK_SECONDS = 1.0
"""A short call may come while a long one is watched."""
