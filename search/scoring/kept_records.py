"""Records of revisions in the memory of a process, as few large arrays."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import numpy as np

from search.packed_records import PackedRecords, join_records, take_records
from skills.record import RevisionKey

_BLOCK_RECORDS = 2_000
"""Maximum records of a block that is merged with new ones."""

_MAX_GONE_SHARE = 0.25
"""Share of dropped records from which all blocks are written anew."""


class KeptRecords:
    """Records in blocks of some thousand. Threads may share it.

    A block never changes, so that a reader can keep using it while another thread replaces it by a
    larger one. keep_seconds: time for which released records stay, since a running query keeps the
    pointers that it started with while another query may load newer ones.
    """

    def __init__(self, keep_seconds: float) -> None:
        self._keep_seconds = keep_seconds
        self._lock = threading.Lock()
        self._blocks: list[PackedRecords] = []
        self._places: dict[RevisionKey, tuple[PackedRecords, int]] = {}
        self._released: dict[RevisionKey, float] = {}

    def __contains__(self, key: RevisionKey) -> bool:
        return key in self._places

    def list_keys(self) -> list[RevisionKey]:
        """Return the revisions whose records are kept."""
        return list(self._places)

    def pack(self, keys: Iterable[RevisionKey]) -> PackedRecords:
        """Return the records of the given revisions that are kept, in any order."""
        rows: dict[int, tuple[PackedRecords, list[int]]] = {}
        for key in keys:
            if (place := self._places.get(key)) is not None:
                block, row = place
                rows.setdefault(id(block), (block, []))[1].append(row)
        parts = (take_records(block, np.array(some, np.intp)) for block, some in rows.values())
        return join_records(list(parts))

    def keep(self, records: PackedRecords) -> None:
        """Keep records until they are released; records that are kept already do not change."""
        with self._lock:
            fresh = [row for row, key in enumerate(records.keys) if key not in self._places]
            if fresh:
                self._append(take_records(records, np.array(fresh, np.intp)))

    def drop(self, keys: Iterable[RevisionKey]) -> None:
        """Remove records now; revisions without a kept record are ignored."""
        with self._lock:
            self._drop(keys)

    def release(self, keys: Iterable[RevisionKey]) -> None:
        """Mark records for removal; a later call removes them after `keep_seconds`."""
        now = time.monotonic()
        with self._lock:
            due = [key for key, at in self._released.items() if now - at >= self._keep_seconds]
            self._drop(due)
            self._released |= dict.fromkeys((key for key in keys if key in self._places), now)

    def _drop(self, keys: Iterable[RevisionKey]) -> None:
        for key in keys:
            self._places.pop(key, None)
            self._released.pop(key, None)
        gone = sum(map(len, self._blocks)) - len(self._places)
        if gone > max(_BLOCK_RECORDS, _MAX_GONE_SHARE * len(self._places)):
            blocks, self._blocks = self._blocks, []
            for block in blocks:
                self._append(self._take_kept(block))

    def _append(self, records: PackedRecords) -> None:
        """Add a block; merges it with the last block if both are small."""
        if self._blocks and len(self._blocks[-1]) + len(records) <= _BLOCK_RECORDS:
            records = join_records([self._take_kept(self._blocks.pop()), records])
        if len(records):
            self._blocks.append(records)
            self._places |= {key: (records, row) for row, key in enumerate(records.keys)}

    def _take_kept(self, block: PackedRecords) -> PackedRecords:
        """Return the records of a block that were not dropped."""
        places = ((row, self._places.get(key)) for row, key in enumerate(block.keys))
        rows = [row for row, at in places if at is not None and at[0] is block and at[1] == row]
        return take_records(block, np.array(rows, np.intp))
