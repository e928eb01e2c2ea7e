"""The pack of forward records: term counts of all revisions, mapped into memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from search.blob_codec import unpack_forward
from search.local.packs.column_pack import NewRows, PackFormat
from search.local.packs.key_index import KEY_COLUMNS, KeyIndex, key_block
from search.local.packs.mapped_columns import Array, Block, Column, MappedColumns
from search.packed_records import Entries, HashLists, PackedRecords, pack_records
from search.protocol import TEXT_FIELDS, ForwardRecord
from search.scoring.hubness import BACKGROUND_MEAN_LENGTHS, compute_hubness
from search.scoring.weights import ScoringWeights
from search.text.background_frequencies import load_background
from skills.batches import batches
from skills.record import RevisionKey

_FORMAT = 2
_BATCH_ROWS = 500
_FIELDS = len(TEXT_FIELDS)
_COLUMNS = (
    Column("number", "<i8"),
    *KEY_COLUMNS,
    Column("lengths", "<f4", _FIELDS),
    Column("hubness", "<f8"),
    # Whether a language model completed the revision; the completions themselves are only in the
    # store.
    Column("completed", "<u1"),
    Column("terms", "<u8", lists="terms"),
    Column("counts", "<u1", _FIELDS, lists="terms"),
    Column("bigrams", "<u8", lists="bigrams"),
    Column("bigram_weights", "<f4", lists="bigrams"),
    Column("names", "<u8", lists="names"),
    Column("examples", "<u8", lists="examples"),
    # The terms of all excluded uses of a revision, and the number of terms of each use.
    Column("excluded", "<u8", lists="excluded"),
    Column("excluded_sizes", "<i4", lists="excluded_sizes"),
)


@lru_cache(maxsize=1)
def forward_format() -> PackFormat:
    """Return the format of the pack. Its version is a digest of everything that hubness is computed
    from; the analysis of skills is part of the schema of the index."""
    background = load_background()
    digest = blake2b(repr((ScoringWeights(), BACKGROUND_MEAN_LENGTHS)).encode(), digest_size=8)
    digest.update(background.terms.tobytes() + background.levels.tobytes())
    digest.update(repr(background.max_idf).encode())
    return PackFormat("forward", f"{_FORMAT}.{digest.hexdigest()}", _COLUMNS, read_rows)


def read_rows(connection: sqlite3.Connection, after: int) -> Iterator[NewRows]:
    """Yield the rows of the store above a row number, in order, some at a time."""
    rows = connection.execute(
        "SELECT number, skill_id, seq, forward FROM revisions WHERE number > ? ORDER BY number",
        (after,),
    )
    for batch in batches(rows, _BATCH_ROWS):
        numbers = [number for number, *_ in batch]
        records = {RevisionKey(name, seq): unpack_forward(blob) for _, name, seq, blob in batch}
        yield NewRows(_to_block(numbers, records), numbers[-1])


def _to_block(numbers: Sequence[int], records: dict[RevisionKey, ForwardRecord]) -> Block:
    keys = key_block(list(records))
    packed = pack_records(records)
    excluded = [[len(use) for use in record.excluded] for record in records.values()]
    return Block(
        len(records),
        {
            **keys.values,
            "number": np.array(numbers),
            "lengths": packed.lengths,
            "hubness": compute_hubness(packed, load_background(), ScoringWeights()),
            "completed": np.array([bool(record.completed) for record in records.values()]),
            "terms": packed.terms.values,
            "counts": packed.counts,
            "bigrams": packed.bigrams.values,
            "bigram_weights": packed.bigram_weights,
            "names": packed.names.values,
            "examples": packed.examples.values,
            "excluded": packed.excluded.values,
            "excluded_sizes": np.array([size for sizes in excluded for size in sizes]),
        },
        {
            **keys.lengths,
            "terms": packed.terms.sizes,
            "bigrams": packed.bigrams.sizes,
            "names": packed.names.sizes,
            "examples": packed.examples.sizes,
            "excluded": np.array([sum(sizes) for sizes in excluded]),
            "excluded_sizes": np.array([len(sizes) for sizes in excluded]),
        },
    )


class ForwardPack:
    """The mapped rows, found by key. Threads may share it."""

    def __init__(self, columns: MappedColumns) -> None:
        self._columns = columns
        self._keys = KeyIndex(columns)

    def find(self, keys: Sequence[RevisionKey]) -> npt.NDArray[np.intp]:
        """Return the place of each revision, -1 for a revision that the pack lacks."""
        return self._keys.find(keys)

    def keys_of(self, numbers: Sequence[int]) -> dict[int, RevisionKey]:
        """Return revisions by row number of the store; numbers that the pack lacks are left out."""
        known, wanted = self._columns.values["number"], np.array(numbers, dtype=np.int64)
        places = known.searchsorted(wanted)
        inside = places < len(known)
        places, wanted = places[inside], wanted[inside]
        places = places[known[places] == wanted]
        return dict(zip(known[places].tolist(), self._keys.keys(places), strict=True))

    def is_completed(self, places: Array) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows for which the store also has completions by a language
        model."""
        return self._columns.values["completed"][places] > 0

    def pack(self, keys: Sequence[RevisionKey], places: Array) -> PackedRecords:
        """Return the records of these rows, without completions."""
        values = self._columns.values
        starts, ends = (edges.tolist() for edges in self._columns.bounds("terms", places))
        # Read as whole slices, since terms and their counts are most of the data.
        stretches = list(map(slice, starts, ends))
        terms = HashLists.join([values["terms"][one] for one in stretches])
        counts = [values["counts"][one] for one in stretches]
        bigrams, entries = self._gather("bigrams", places)
        excluded, _ = self._gather("excluded", places)
        uses, _ = self._gather("excluded_sizes", places)
        return PackedRecords(
            keys=tuple(keys),
            terms=terms,
            counts=np.concatenate(counts) if counts else values["counts"][:0],
            lengths=values["lengths"][places].astype(np.float64),
            has_completed=np.zeros(len(places), dtype=np.bool_),
            bigrams=bigrams,
            bigram_weights=values["bigram_weights"][entries],
            names=self._gather("names", places)[0],
            examples=self._gather("examples", places)[0],
            excluded=HashLists(excluded.values, np.cumsum(uses.values, dtype=np.intp)),
            excluding=uses.owners,
            hubness=values["hubness"][places],
        )

    def _gather(self, lists: str, places: Array) -> tuple[HashLists, Array]:
        """Return the given rows of the column `lists`, and the places of their entries."""
        entries = Entries.between(*self._columns.bounds(lists, places))
        return HashLists(self._columns.values[lists][entries.places], entries.ends), entries.places
