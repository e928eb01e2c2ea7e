"""Records of candidates from the pack of forward records, and from the store for newer rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from search.batches import batches
from search.blob_codec import unpack_forward
from search.completed_terms import use_completed
from search.local.packs.column_pack import PackRecord, map_pack, read_record
from search.local.packs.forward_pack import ForwardPack, forward_format
from search.local.revision_store import RevisionStore
from search.local.store_follower import StoreFollower
from search.packed_records import (
    PackedRecords,
    RecordView,
    join_records,
    pack_views,
    view_record,
)
from search.scoring.record_source import BATCH_RECORDS, KeptViews, RecordSource
from skills.record import RevisionKey


class LocalRecords(StoreFollower, RecordSource):
    """Reads records where they are.

    In memory are only those that the pack lacks: of rows that were added since it was written, and
    those with completions in use. Without a pack that can be used these are all. keep_seconds: as
    of `KeptViews`.
    """

    def __init__(
        self,
        store: RevisionStore,
        packs: Path,
        origins: Collection[str] = (),
        keep_seconds: float = 0.0,
    ) -> None:
        super().__init__(store)
        self._packs = packs
        self._origins = frozenset(origins)
        self._kept = KeptViews(keep_seconds)
        self._record: PackRecord | None = None
        self._pack: ForwardPack | None = None

    @override
    def _read(self, connection: sqlite3.Connection) -> None:
        record = read_record(connection, forward_format())
        if record == self._record and self._pack is not None:
            return
        columns = map_pack(self._packs, forward_format(), record)
        self._record, self._pack = record, None if columns is None else ForwardPack(columns)
        # What was deleted before it was packed stays: statistics may still count it.
        kept = self._kept.list_keys()
        places = self._find_packed(self._pack, kept)
        self._kept.drop(key for key, place in zip(kept, places.tolist(), strict=True) if place >= 0)

    @override
    def pack(self, keys: Sequence[RevisionKey]) -> PackedRecords:
        packed, views = self._find(keys)
        return join_records([packed, pack_views(self._kept.complete(views))])

    @override
    def read(self, keys: Sequence[RevisionKey]) -> Iterator[PackedRecords]:
        for batch in batches(keys, BATCH_RECORDS):
            packed, views = self._find(batch)
            yield join_records([packed, pack_views(views)])

    @override
    def release(self, keys: Sequence[RevisionKey]) -> None:
        self._kept.release(keys)

    def _find(self, keys: Sequence[RevisionKey]) -> tuple[PackedRecords, list[RecordView]]:
        """Return the records of those of the revisions that are there: of the pack, and others."""
        self.refresh()
        pack = self._pack
        places = self._find_packed(pack, keys)
        if pack is None:
            packed = pack_views(())
        else:
            inside = np.flatnonzero(places >= 0)
            packed = pack.pack([keys[at] for at in inside.tolist()], places[inside])
        rest = [keys[at] for at in np.flatnonzero(places < 0).tolist()]
        found = {key: view for key in rest if (view := self._kept.get(key)) is not None}
        if missing := [key for key in rest if key not in found]:
            found |= self._read_store(missing)
        return packed, [found[key] for key in rest if key in found]

    def _find_packed(
        self, pack: ForwardPack | None, keys: Sequence[RevisionKey]
    ) -> npt.NDArray[np.intp]:
        """Return the place in the pack of each revision that can be used from there, else -1."""
        if pack is None:
            return np.full(len(keys), -1, dtype=np.intp)
        places = pack.find(keys)
        if self._origins:
            inside = np.flatnonzero(places >= 0)
            places[inside[pack.is_completed(places[inside])]] = -1
        return places

    def _read_store(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, RecordView]:
        rows = self._store.columns(keys, ("forward",))
        views = {
            key: view_record(key, use_completed(unpack_forward(blob), self._origins))
            for key, (blob,) in rows.items()
        }
        self._kept.keep(views.values())
        return views
