"""Cache of the values that were used last, for threads of a process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """Values up to a total weight; the least recently used are removed first. Thread-safe."""

    def __init__(self, max_weight: int) -> None:
        self._max_weight = max_weight
        self._weight = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the cached values of the keys."""
        found = {}
        with self._lock:
            for key in keys:
                entry = self._values.get(key)
                if entry is not None:
                    self._values.move_to_end(key)
                    found[key] = entry[0]
        return found

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Add or replace a value; one above the total weight is not cached."""
        with self._lock:
            self._remove(key)
            self._values[key] = value, weight
            self._weight += weight
            while self._weight > self._max_weight:
                self._remove(next(iter(self._values)))

    def evict(self, keys: Iterable[K]) -> None:
        """Remove the values of these keys."""
        with self._lock:
            for key in keys:
                self._remove(key)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self._weight = 0

    def _remove(self, key: K) -> None:
        entry = self._values.pop(key, None)
        if entry is not None:
            self._weight -= entry[1]
