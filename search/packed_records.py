"""Records of many revisions as few arrays, from which scores are computed without a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from search.completed_terms import COMPLETED, stack_fields, widen
from search.protocol import FIELDS, ForwardRecord, TermIds, Vector
from skills.record import RevisionKey

_NAME = FIELDS.index("name")

_Ints = npt.NDArray[np.intp]
_Floats = npt.NDArray[np.float64]


def name_terms(record: ForwardRecord) -> TermIds:
    """Return the terms of a revision's name, sorted."""
    return record.terms[record.counts[:, _NAME].nonzero()[0]]


class Entries(NamedTuple):
    """Places of the entries of chosen lists, one list after the other.

    places: of each entry. ends: the end of each list within `places`, (lists,).
    """

    places: _Ints
    ends: _Ints

    @classmethod
    def between(cls, starts: _Ints, ends: _Ints) -> Entries:
        """Return the entries from each start up to the corresponding end."""
        sizes = ends - starts
        behind = np.cumsum(sizes, dtype=np.intp)
        return cls(np.repeat(starts - behind + sizes, sizes) + np.arange(int(sizes.sum())), behind)


@dataclass(frozen=True, slots=True)
class HashLists:
    """Concatenated lists of hashes. ends: the end of each list in `values`, (lists,)."""

    values: TermIds
    ends: _Ints

    @classmethod
    def join(cls, lists: Sequence[TermIds]) -> HashLists:
        """Return separate lists as one object."""
        values = np.concatenate(lists) if lists else np.empty(0, dtype=np.uint64)
        return cls(values, np.cumsum([len(one) for one in lists], dtype=np.intp))

    @classmethod
    def concatenate(cls, parts: Sequence[HashLists]) -> HashLists:
        """Return the lists of all parts, one part after the other."""
        firsts = np.cumsum([0, *(len(one.values) for one in parts)])
        ends = [one.ends + first for one, first in zip(parts, firsts, strict=False)]
        return cls(np.concatenate([one.values for one in parts]), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def stretches(self, lists: _Ints) -> list[slice]:
        """Return the slice of `values` of each of these lists."""
        return list(map(slice, *(edges.tolist() for edges in self._edges(lists))))

    def entries(self, lists: _Ints) -> Entries:
        """Return the place of every hash of these lists."""
        return Entries.between(*self._edges(lists))

    def _edges(self, lists: _Ints) -> tuple[_Ints, _Ints]:
        return np.where(lists > 0, self.ends[lists - 1], 0), self.ends[lists]

    def take(self, lists: _Ints) -> HashLists:
        """Return these lists."""
        places, ends = self.entries(lists)
        return HashLists(self.values[places], ends)

    @property
    def sizes(self) -> _Ints:
        """The length of each list, (lists,)."""
        return np.diff(self.ends, prepend=0)

    @property
    def owners(self) -> _Ints:
        """The list of each hash, (hashes,)."""
        return np.repeat(np.arange(len(self.ends)), self.sizes)


@dataclass(frozen=True, slots=True)
class PackedRecords:
    """The records of revisions, in the order of `keys`.

    counts: uint8 (terms, fields). lengths: (records, fields). has_completed: whether the record has
    the field `completed`, (records,); all get it if one has it. excluded: every excluded use of all
    records. excluding: the index of the record of each such use, in order.
    """

    keys: tuple[RevisionKey, ...]
    terms: HashLists
    counts: npt.NDArray[np.uint8]
    lengths: _Floats
    has_completed: npt.NDArray[np.bool_]
    bigrams: HashLists
    bigram_weights: Vector
    names: HashLists
    examples: HashLists
    excluded: HashLists
    excluding: _Ints
    hubness: _Floats

    def __len__(self) -> int:
        return len(self.keys)


def join_records(parts: Sequence[PackedRecords]) -> PackedRecords:
    """Return packed records as one object, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return pack_records({})
    counts, lengths = [one.counts for one in parts], [one.lengths for one in parts]
    if len({one.shape[1] for one in lengths}) > 1:
        counts, lengths = [*map(widen, counts)], [*map(widen, lengths)]
    firsts = np.cumsum([0, *(len(one) for one in parts)])
    return PackedRecords(
        keys=tuple(chain.from_iterable(one.keys for one in parts)),
        terms=HashLists.concatenate([one.terms for one in parts]),
        counts=np.concatenate(counts),
        lengths=np.concatenate(lengths),
        has_completed=np.concatenate([one.has_completed for one in parts]),
        bigrams=HashLists.concatenate([one.bigrams for one in parts]),
        bigram_weights=np.concatenate([one.bigram_weights for one in parts]),
        names=HashLists.concatenate([one.names for one in parts]),
        examples=HashLists.concatenate([one.examples for one in parts]),
        excluded=HashLists.concatenate([one.excluded for one in parts]),
        excluding=np.concatenate(
            [one.excluding + first for one, first in zip(parts, firsts, strict=False)]
        ),
        hubness=np.concatenate([one.hubness for one in parts]),
    )


def take_records(records: PackedRecords, rows: _Ints) -> PackedRecords:
    """Return the records of these rows."""
    if len(rows) == len(records) and np.array_equal(rows, np.arange(len(rows))):
        return records
    stretches, bigrams = records.terms.stretches(rows), records.bigrams.entries(rows)
    counts = [records.counts[one] for one in stretches]
    edges = (records.excluding.searchsorted(rows, side) for side in ("left", "right"))
    uses = Entries.between(*edges)
    return PackedRecords(
        keys=tuple(records.keys[row] for row in rows.tolist()),
        # Read as whole slices, since terms and their counts are most of the data.
        terms=HashLists.join([records.terms.values[one] for one in stretches]),
        counts=np.concatenate(counts) if counts else records.counts[:0],
        lengths=records.lengths[rows],
        has_completed=records.has_completed[rows],
        bigrams=HashLists(records.bigrams.values[bigrams.places], bigrams.ends),
        bigram_weights=records.bigram_weights[bigrams.places],
        names=records.names.take(rows),
        examples=records.examples.take(rows),
        excluded=records.excluded.take(uses.places),
        excluding=np.repeat(np.arange(len(rows)), np.diff(uses.ends, prepend=0)),
        hubness=records.hubness[rows],
    )


def pack_records(records: Mapping[RevisionKey, ForwardRecord]) -> PackedRecords:
    """Pack records in their order; their hubness is NaN."""
    found = list(records.values())
    counts, lengths = stack_fields([one.counts for one in found], [one.lengths for one in found])
    weights = [one.bigram_weights for one in found]
    return PackedRecords(
        keys=tuple(records),
        terms=HashLists.join([one.terms for one in found]),
        counts=counts,
        lengths=lengths,
        has_completed=np.array([len(one.lengths) > COMPLETED for one in found], dtype=np.bool_),
        bigrams=HashLists.join([one.bigrams for one in found]),
        bigram_weights=np.concatenate(weights) if weights else np.empty(0, dtype=np.float32),
        names=HashLists.join([name_terms(one) for one in found]),
        examples=HashLists.join([one.examples for one in found]),
        excluded=HashLists.join([use for one in found for use in one.excluded]),
        excluding=np.repeat(np.arange(len(found)), [len(one.excluded) for one in found]),
        hubness=np.full(len(found), np.nan),
    )
