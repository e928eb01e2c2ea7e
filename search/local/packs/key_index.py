"""Index of the revision keys of a pack: finds rows by key, and reads keys by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from search.local.packs.mapped_columns import Array, Block, Column, MappedColumns
from search.packed_records import Entries
from skills.record import RevisionKey

KEY_COLUMNS = (
    Column("key_hash", "<u8"),
    Column("seq", "<i8"),
    Column("skill_id", "<u1", lists="skill_id"),
)


def key_block(keys: Sequence[RevisionKey]) -> Block:
    """Return the values of KEY_COLUMNS."""
    names = [_encode(key.skill_id) for key in keys]
    return Block(
        len(keys),
        {
            "key_hash": _hash_keys(keys),
            "seq": np.array([key.seq for key in keys], dtype=np.int64),
            "skill_id": np.frombuffer(b"".join(names), np.uint8),
        },
        {"skill_id": np.array([len(name) for name in names])},
    )


def _hash_keys(keys: Sequence[RevisionKey]) -> npt.NDArray[np.uint64]:
    """Return stable hashes of 64 bits, which make a collision among millions unlikely."""
    return np.frombuffer(b"".join(map(_hash_key, keys)), "<u8")


# A query looks the same thousand keys up in several packs.
@lru_cache(maxsize=1 << 14)
def _hash_key(key: RevisionKey) -> bytes:
    return blake2b(_encode(f"{key.seq}@{key.skill_id}"), digest_size=8).digest()


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")


class KeyIndex:
    """Maps keys to rows, and rows to keys. Threads may share it.

    columns: must include KEY_COLUMNS.
    """

    def __init__(self, columns: MappedColumns) -> None:
        self._columns = columns

    @cached_property
    def _order(self) -> tuple[Array, Array]:
        """The hashes in ascending order, and their rows."""
        hashes = self._columns.values["key_hash"]
        # For a revision that was deleted and added again, the later row counts.
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    def find(self, keys: Sequence[RevisionKey]) -> npt.NDArray[np.intp]:
        """Return the place of each revision, -1 for a revision that the pack lacks."""
        hashes, order = self._order
        if not len(hashes) or not keys:
            return np.full(len(keys), -1, dtype=np.intp)
        wanted = _hash_keys(keys)
        near = np.maximum(hashes.searchsorted(wanted, side="right") - 1, 0)
        return np.where(hashes[near] == wanted, order[near], -1)

    def keys(self, places: Array) -> Iterator[RevisionKey]:
        """Yield the keys of rows."""
        values = self._columns.values
        letters, ends = Entries.between(*self._columns.bounds("skill_id", places))
        names = values["skill_id"][letters].tobytes()
        # One string of all is sliced faster than each is decoded; in ASCII a byte is a letter.
        text = names.decode() if names.isascii() else None
        start = 0
        for end, seq in zip(ends.tolist(), values["seq"][places].tolist(), strict=True):
            name = text[start:end] if text is not None else _decode(names[start:end])
            yield RevisionKey(name, seq)
            start = end
