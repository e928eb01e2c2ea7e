"""Records of candidates from the pack of forward records, and from the store for newer rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from search.blob_codec import unpack_forward
from search.local.forward_pack_follower import ForwardPackFollower
from search.local.packs.forward_pack import ForwardPack
from search.local.revision_store import RevisionStore
from search.packed_records import PackedRecords, join_records
from search.scoring.kept_records import KeptRecords
from search.scoring.record_source import BATCH_RECORDS, RecordSource, pack_completed
from skills.batches import batches
from skills.record import RevisionKey


class LocalRecords(ForwardPackFollower, RecordSource):
    """A `RecordSource` that reads records from the pack, and from the store.

    Only records that the pack lacks are kept in memory: records of rows that were added since the
    pack was written, and records with completions in use. Without a usable pack all records are.
    keep_seconds: see `KeptRecords`.
    """

    def __init__(
        self,
        store: RevisionStore,
        packs: Path,
        origins: Collection[str] = (),
        keep_seconds: float = 0.0,
    ) -> None:
        super().__init__(store, packs)
        self._origins = frozenset(origins)
        self._kept = KeptRecords(keep_seconds)

    @override
    def _read(self, connection: sqlite3.Connection) -> None:
        former = self._pack
        super()._read(connection)
        if self._pack is former:
            return
        # Records of revisions that were deleted before they were packed stay: statistics may still
        # count them.
        kept = self._kept.list_keys()
        places = self._find_packed(self._pack, kept)
        self._kept.drop(key for key, place in zip(kept, places.tolist(), strict=True) if place >= 0)

    @override
    def pack(self, keys: Sequence[RevisionKey]) -> PackedRecords:
        self.refresh()
        pack = self._pack
        places = self._find_packed(pack, keys)
        rest = [keys[at] for at in np.flatnonzero(places < 0).tolist()]
        if missing := [key for key in rest if key not in self._kept]:
            rows = self._store.columns(missing, ("forward",))
            records = {key: unpack_forward(blob) for key, (blob,) in rows.items()}
            self._kept.keep(pack_completed(records, self._origins))
        kept = self._kept.pack(rest)
        if len(kept) < len(rest) and self._pack is not pack:
            # Another thread mapped a newer pack meanwhile, and dropped the records that it has.
            return self.pack(keys)
        parts = [kept] if rest else []
        if pack is not None:
            inside = np.flatnonzero(places >= 0)
            parts.insert(0, pack.pack([keys[at] for at in inside.tolist()], places[inside]))
        return join_records(parts)

    @override
    def read(self, keys: Sequence[RevisionKey]) -> Iterator[PackedRecords]:
        yield from map(self.pack, batches(keys, BATCH_RECORDS))

    @override
    def release(self, keys: Sequence[RevisionKey]) -> None:
        self._kept.release(keys)

    def _find_packed(
        self, pack: ForwardPack | None, keys: Sequence[RevisionKey]
    ) -> npt.NDArray[np.intp]:
        """Return the place of each revision in the pack, -1 if the pack lacks it or its
        completions."""
        if pack is None:
            return np.full(len(keys), -1, dtype=np.intp)
        places = pack.find(keys)
        if self._origins:
            inside = np.flatnonzero(places >= 0)
            places[inside[pack.is_completed(places[inside])]] = -1
        return places
