"""How many requests each token may make: a bucket of tokens that fills at a steady rate."""

from __future__ import annotations

import threading
import time


class Buckets:
    """One bucket a name: `burst` requests at once, then `a_minute` of them."""

    def __init__(self, a_minute: float, burst: int) -> None:
        self._rate = a_minute / 60.0
        self._burst = float(burst)
        self._lock = threading.Lock()
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> float:
        """Take one; 0.0, or the seconds after which there is one again."""
        now = time.monotonic()
        with self._lock:
            level, since = self._levels.get(name, (self._burst, now))
            level = min(self._burst, level + (now - since) * self._rate)
            if level < 1.0:
                self._levels[name] = (level, now)
                return (1.0 - level) / self._rate
            self._levels[name] = (level - 1.0, now)
            return 0.0
