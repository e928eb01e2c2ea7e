"""The pack of forward records, mapped anew when the writing process has written more."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from search.local.packs.column_pack import PackRecord, map_pack, read_record
from search.local.packs.forward_pack import ForwardPack, forward_format
from search.local.revision_store import RevisionStore
from search.local.store_follower import StoreFollower
from skills.record import RevisionKey


class ForwardPackFollower(StoreFollower):
    """Base class of what reads the pack of forward records. packs: folder of the packs."""

    def __init__(self, store: RevisionStore, packs: Path) -> None:
        super().__init__(store)
        self._packs = packs
        self._record: PackRecord | None = None
        self._pack: ForwardPack | None = None

    @override
    def _read(self, connection: sqlite3.Connection) -> None:
        record = read_record(connection, forward_format())
        if record == self._record and self._pack is not None:
            return
        columns = map_pack(self._packs, forward_format(), record)
        self._record, self._pack = record, None if columns is None else ForwardPack(columns)


class RowKeys(ForwardPackFollower):
    """Reads keys from the pack of forward records, and keys of newer rows from the store.

    The pack is faster: a row of the store takes kilobytes, so that almost every key is on a page of
    its own.
    """

    def find(self, numbers: Sequence[int]) -> dict[int, RevisionKey]:
        """Return revisions by row number. Deleted revisions are left out, unless the pack still has
        them."""
        self.refresh()
        found = {} if self._pack is None else self._pack.keys_of(numbers)
        return found | self._store.keys_of([number for number in numbers if number not in found])
