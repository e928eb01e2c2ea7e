"""Sources of the records of candidates, by revision."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from typing_extensions import override

from search.completed_terms import use_completed
from search.packed_records import PackedRecords, pack_records
from search.protocol import ForwardRecord, SearchIndex
from search.scoring.hubness import compute_hubness
from search.scoring.kept_records import KeptRecords
from search.scoring.weights import ScoringWeights
from search.text.background_frequencies import load_background
from skills.batches import batches
from skills.record import RevisionKey

BATCH_RECORDS = 2_000
"""Number of records that are counted at a time: some megabytes."""


class RecordSource(Protocol):
    """Records of revisions, with the completions in use. Threads may share it."""

    def pack(self, keys: Sequence[RevisionKey]) -> PackedRecords:
        """Return the records of the given revisions that exist, in any order, with hubness."""
        ...

    def read(self, keys: Sequence[RevisionKey]) -> Iterator[PackedRecords]:
        """Yield the records of the given revisions that exist, some at a time.

        Revisions have to be read once before `pack` finds them. Raises TransientError if the
        store does not answer.
        """
        ...

    def release(self, keys: Sequence[RevisionKey]) -> None:
        """Forget superseded revisions, once no query can need them any more."""
        ...


class MemoryRecords(RecordSource):
    """Keeps all records that were read in memory, for an index on a server.

    origins: of the completions in use. keep_seconds: see `KeptRecords`.
    """

    def __init__(
        self, index: SearchIndex, origins: Collection[str] = (), keep_seconds: float = 0.0
    ) -> None:
        self._index = index
        self._origins = frozenset(origins)
        self._kept = KeptRecords(keep_seconds)

    @override
    def pack(self, keys: Sequence[RevisionKey]) -> PackedRecords:
        return self._kept.pack(keys)

    @override
    def read(self, keys: Sequence[RevisionKey]) -> Iterator[PackedRecords]:
        for batch in batches(keys, BATCH_RECORDS):
            missing = [key for key in batch if key not in self._kept]
            if missing:
                found = self._index.get_forward_records(missing)
                self._kept.keep(pack_completed(found, self._origins))
            yield self._kept.pack(batch)

    @override
    def release(self, keys: Sequence[RevisionKey]) -> None:
        self._kept.release(keys)


def pack_completed(
    records: Mapping[RevisionKey, ForwardRecord], origins: Collection[str]
) -> PackedRecords:
    """Pack records with the completions of these origins, and with hubness."""
    used = {key: use_completed(record, origins) for key, record in records.items()}
    packed = pack_records(used)
    hubness = compute_hubness(packed, load_background(), ScoringWeights())
    return replace(packed, hubness=hubness)
