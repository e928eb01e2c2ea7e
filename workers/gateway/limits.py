"""How many requests each caller may make: a bucket of tokens that fills at a steady rate."""

from __future__ import annotations

import math
import threading
import time

MOST_BUCKETS = 10_000
"""Callers without a token are told apart by address, and an attacker may have any number."""

_OTHERS = ""


class Buckets:
    """One bucket a name: `burst` requests at once, then `a_minute` of them.

    A full bucket is as good as none, and goes where there are too many; while there are too many
    others, new names share one.
    """

    def __init__(self, a_minute: float, burst: int) -> None:
        self._rate = a_minute / 60.0
        self._burst = float(burst)
        self._lock = threading.Lock()
        self._levels: dict[str, tuple[float, float]] = {}
        self._swept = -math.inf

    def take(self, name: str) -> float:
        """Take one; 0.0, or the seconds after which there is one again."""
        now = time.monotonic()
        with self._lock:
            name = self._place(name, now)
            level, since = self._levels.get(name, (self._burst, now))
            level = min(self._burst, level + (now - since) * self._rate)
            if level < 1.0:
                self._levels[name] = (level, now)
                return (1.0 - level) / self._rate
            self._levels[name] = (level - 1.0, now)
            return 0.0

    def _place(self, name: str, now: float) -> str:
        if name in self._levels or len(self._levels) < MOST_BUCKETS:
            return name
        if now > self._swept + self._burst / self._rate / 10:
            self._swept = now
            self._levels = {
                one: (level, since)
                for one, (level, since) in self._levels.items()
                if level + (now - since) * self._rate < self._burst
            }
        return name if len(self._levels) < MOST_BUCKETS else _OTHERS
