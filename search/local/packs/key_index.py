"""Finds the rows of revisions in a pack by hashes of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from skills.record import RevisionKey


def hash_key(key: RevisionKey) -> bytes:
    """Return a stable hash of 8 bytes; 64 bits make a collision among millions unlikely."""
    text = f"{key.seq}@{key.skill_id}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


class KeyIndex:
    """Rows by key. Threads may share it.

    hashes: of the key of each row (`hash_key`), uint64 (rows,).
    """

    def __init__(self, hashes: npt.NDArray[np.uint64]) -> None:
        # Of a revision that was deleted and added again, the later row.
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]

    def find(self, keys: Sequence[RevisionKey]) -> npt.NDArray[np.intp]:
        """Return the place of each revision, -1 for one that is not there."""
        if not len(self._sorted) or not keys:
            return np.full(len(keys), -1, dtype=np.intp)
        wanted = np.frombuffer(b"".join(map(hash_key, keys)), dtype="<u8")
        near = np.maximum(self._sorted.searchsorted(wanted, side="right") - 1, 0)
        return np.where(self._sorted[near] == wanted, self._order[near], -1)
