"""Cache of skill vectors that were read; they never change, so that none is stale."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import numpy as np

from search.protocol import Vector
from skills.record import RevisionKey


class VectorCache:
    """Skill vectors at half precision in one ring buffer; new ones replace the oldest.

    Half precision changes a cosine by less than 0.0002 and halves the memory, which the system
    allocates as rows are written. Threads may share it.
    """

    def __init__(self, dimension: int, max_bytes: int) -> None:
        rows = max(max_bytes // (2 * dimension * 2), 1)
        self._block = np.empty((rows, 2, dimension), dtype=np.float16)
        self._places: dict[RevisionKey, int] = {}
        self._keys: list[RevisionKey | None] = []
        self._next = 0
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """Number of skills that fit."""
        return len(self._block)

    def get(self, keys: Iterable[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return the cached vectors of the keys, each float32 (2, dimension)."""
        found, taken = self._take(keys)
        return dict(zip(found, taken, strict=True))

    def cosines(
        self, keys: Iterable[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, tuple[float, float]]:
        """Return the cosines of a unit vector with both cached vectors of the keys."""
        found, taken = self._take(keys)
        return dict(zip(found, map(tuple, np.vecdot(taken, vector).tolist()), strict=True))

    def _take(self, keys: Iterable[RevisionKey]) -> tuple[list[RevisionKey], Vector]:
        """Return the cached keys of `keys`, and their vectors, (keys, 2, dimension)."""
        with self._lock:
            found = [(key, place) for key in keys if (place := self._places.get(key)) is not None]
            taken = self._block[[place for _, place in found]].astype(np.float32)
        return [key for key, _ in found], taken

    def put(self, vectors: Mapping[RevisionKey, Vector]) -> None:
        """Add vectors (2, dimension); vectors of a cached key are not replaced."""
        with self._lock:
            for key, pair in vectors.items():
                if key not in self._places:
                    self._block[self._allocate_row(key)] = pair

    def _allocate_row(self, key: RevisionKey) -> int:
        place = self._next
        if place == len(self._keys):
            self._keys.append(key)
        else:
            former = self._keys[place]
            if former is not None:
                del self._places[former]
            self._keys[place] = key
        self._places[key] = place
        self._next = (place + 1) % len(self._block)
        return place

    def evict(self, keys: Iterable[RevisionKey]) -> None:
        """Remove the entries of deleted revisions."""
        with self._lock:
            for key in keys:
                place = self._places.pop(key, None)
                if place is not None:
                    self._keys[place] = None
