"""How often each may ask: a bucket of tokens that fills at a steady rate; and how many at once."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MAX_BUCKETS = 10_000
"""Callers without a token are told apart by address, and an attacker may have any number."""

_SHARED_BUCKET = ""


class RateLimiter:
    """One bucket a name: `burst` requests at once, then `a_minute` of them.

    A full bucket is as good as none, and goes where there are too many; while there are too many
    others, new names share one.
    """

    def __init__(self, per_minute: float, burst: int) -> None:
        self.per_minute = per_minute
        self._rate = per_minute / 60.0
        self._burst = float(burst)
        self._lock = threading.Lock()
        self._levels: dict[str, tuple[float, float]] = {}
        self._swept_at = -math.inf

    def acquire(self, name: str) -> float:
        """Take one; 0.0, or the seconds after which there is one again."""
        now = time.monotonic()
        with self._lock:
            name = self._get_bucket_name(name, now)
            level, since = self._levels.get(name, (self._burst, now))
            level = min(self._burst, level + (now - since) * self._rate)
            if level < 1.0:
                self._levels[name] = (level, now)
                return (1.0 - level) / self._rate
            self._levels[name] = (level - 1.0, now)
            return 0.0

    def refund(self, name: str) -> None:
        """Undo an `acquire`."""
        with self._lock:
            name = name if name in self._levels else _SHARED_BUCKET
            if name in self._levels:
                level, since = self._levels[name]
                self._levels[name] = (level + 1.0, since)

    def _get_bucket_name(self, name: str, now: float) -> str:
        if name in self._levels or len(self._levels) < MAX_BUCKETS:
            return name
        if now > self._swept_at + self._burst / self._rate / 10:
            self._swept_at = now
            self._levels = {
                one: (level, since)
                for one, (level, since) in self._levels.items()
                if level + (now - since) * self._rate < self._burst
            }
        return name if len(self._levels) < MAX_BUCKETS else _SHARED_BUCKET


class FairSemaphore:
    """Room for so many at once, half of it for any one name; for one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = max(1, most // 2)
        self._inside: Counter[str] = Counter()
        self._released = asyncio.Condition()

    @asynccontextmanager
    async def slot(self, name: str, seconds: float) -> AsyncIterator[None]:
        """Be inside; raises TimeoutError when there is no room for so long."""
        async with asyncio.timeout(seconds), self._released:
            await self._released.wait_for(lambda: self._has_free_slot(name))
            self._inside[name] += 1
        try:
            yield
        finally:
            async with self._released:
                self._inside[name] -= 1
                self._inside += Counter()  # drops those with none
                self._released.notify_all()

    def _has_free_slot(self, name: str) -> bool:
        return self._inside.total() < self._most and self._inside[name] < self._share
