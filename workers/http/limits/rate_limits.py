"""Rate limits: a token bucket per caller, and a semaphore for concurrent requests."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Scope

MAX_BUCKETS = 10_000
"""Maximum of buckets, which bounds memory: callers without a token have a bucket per address."""

_SHARED_BUCKET = ""


class RateLimiter:
    """A token bucket per name: `burst` requests at once, then `per_minute`.

    At `MAX_BUCKETS`, full buckets are deleted, which has no effect on limits; if too many are left,
    new names share one bucket.
    """

    def __init__(self, per_minute: float, burst: int) -> None:
        self.per_minute = per_minute
        self._rate = per_minute / 60.0
        self._burst = float(burst)
        self._lock = threading.Lock()
        self._levels: dict[str, tuple[float, float]] = {}
        self._swept_at = -math.inf

    def acquire(self, name: str) -> float:
        """Take one token from a bucket; return 0.0, or the seconds until a token is available."""
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
        """Put back the token of an `acquire`."""
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
    """Semaphore of an event loop with `slots` slots, of which one name may hold half."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._share = max(1, slots // 2)
        self._held: Counter[str] = Counter()
        self._released = asyncio.Condition()

    @asynccontextmanager
    async def slot(self, name: str, timeout_seconds: float) -> AsyncIterator[None]:
        """Hold a slot; raises TimeoutError if none is free within `timeout_seconds`."""
        async with asyncio.timeout(timeout_seconds), self._released:
            await self._released.wait_for(lambda: self._has_free_slot(name))
            self._held[name] += 1
        try:
            yield
        finally:
            async with self._released:
                self._held[name] -= 1
                self._held += Counter()  # drops names without a slot
                self._released.notify_all()

    def _has_free_slot(self, name: str) -> bool:
        return self._held.total() < self._slots and self._held[name] < self._share


def get_client_network(scope: Scope) -> str:
    """Return the IPv4 address of a client, or its IPv6 /64 network, which usually has one owner."""
    host: str = (scope.get("client") or ("",))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(address)
