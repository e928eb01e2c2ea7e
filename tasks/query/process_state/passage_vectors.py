"""Vectors of passages that were embedded for queries, kept in this process."""

from __future__ import annotations

import threading
from collections import OrderedDict

from search.protocol import Vector
from skills.record import RevisionKey

_MAX_NUMBERS = 8_000_000
"""Maximum numbers that are kept: 32 MB, about 400 skills."""


class PassageVectorCache:
    """Passage vectors of the revisions used last; thread-safe.

    Only SkillPager's rule needs them (`passages.method = "mmr"`), so the index does not store them.
    """

    def __init__(self, max_numbers: int = _MAX_NUMBERS) -> None:
        self._lock = threading.Lock()
        self._max_numbers = max_numbers
        self._size = 0
        self._kept: OrderedDict[tuple[str, RevisionKey], Vector] = OrderedDict()

    def get(self, model: str, key: RevisionKey) -> Vector | None:
        """Return the vectors of a revision by this encoder (passages, dimension), None if not
        kept."""
        with self._lock:
            vectors = self._kept.get((model, key))
            if vectors is not None:
                self._kept.move_to_end((model, key))
            return vectors

    def put(self, model: str, key: RevisionKey, vectors: Vector) -> None:
        """Keep the vectors of a revision; those used least recently are dropped."""
        with self._lock:
            known = self._kept.pop((model, key), None)
            self._size += vectors.size - (0 if known is None else known.size)
            self._kept[model, key] = vectors
            while self._size > self._max_numbers and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._size -= dropped.size
