"""How often each may ask: a bucket of tokens that fills at a steady rate; and how many at once."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MOST_BUCKETS = 10_000
"""Callers without a token are told apart by address, and an attacker may have any number."""

_OTHERS = ""


class Buckets:
    """One bucket a name: `burst` requests at once, then `a_minute` of them.

    A full bucket is as good as none, and goes where there are too many; while there are too many
    others, new names share one.
    """

    def __init__(self, a_minute: float, burst: int) -> None:
        self.a_minute = a_minute
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

    def give_back(self, name: str) -> None:
        """Undo a `take`."""
        with self._lock:
            name = name if name in self._levels else _OTHERS
            if name in self._levels:
                level, since = self._levels[name]
                self._levels[name] = (level + 1.0, since)

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


class Room:
    """Room for so many at once, half of it for any one name; for one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = max(1, most // 2)
        self._inside: Counter[str] = Counter()
        self._left = asyncio.Condition()

    @asynccontextmanager
    async def place(self, name: str, seconds: float) -> AsyncIterator[None]:
        """Be inside; raises TimeoutError when there is no room for so long."""
        async with asyncio.timeout(seconds), self._left:
            await self._left.wait_for(lambda: self._has_room(name))
            self._inside[name] += 1
        try:
            yield
        finally:
            async with self._left:
                self._inside[name] -= 1
                self._inside += Counter()  # drops those with none
                self._left.notify_all()

    def _has_room(self, name: str) -> bool:
        return self._inside.total() < self._most and self._inside[name] < self._share
