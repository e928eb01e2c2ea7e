"""Records of many revisions as few arrays, which scores are computed from without a loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


class RecordView(NamedTuple):
    """What counts and scores need of one revision; its arrays may be views of a mapped file.

    Arrays as in `ForwardRecord`, `lengths` with the fields of `counts`. names: sorted hashes of the
    terms of the name. hubness: NaN where it was not computed.
    """

    key: RevisionKey
    terms: TermIds
    counts: npt.NDArray[np.uint8]
    lengths: Vector
    bigrams: TermIds
    bigram_weights: Vector
    names: TermIds
    examples: TermIds
    excluded: tuple[TermIds, ...]
    hubness: float = float("nan")


def view_record(key: RevisionKey, record: ForwardRecord) -> RecordView:
    """Return a record as a view, without hubness."""
    return RecordView(
        key,
        record.terms,
        record.counts,
        record.lengths,
        record.bigrams,
        record.bigram_weights,
        name_terms(record),
        record.examples,
        record.excluded,
    )


def name_terms(record: ForwardRecord) -> TermIds:
    """Return the terms of a revision's name, sorted."""
    return record.terms[record.counts[:, _NAME].nonzero()[0]]


@dataclass(frozen=True, slots=True)
class HashLists:
    """Lists of hashes, one behind the other. ends: the place behind the last of each, (lists,)."""

    values: TermIds
    ends: _Ints

    @classmethod
    def join(cls, lists: Sequence[TermIds]) -> HashLists:
        """Return lists as one."""
        values = np.concatenate(lists) if lists else np.empty(0, dtype=np.uint64)
        return cls(values, np.cumsum([len(one) for one in lists], dtype=np.intp))

    @classmethod
    def concatenate(cls, parts: Sequence[HashLists]) -> HashLists:
        """Return the lists of all parts, one part behind the other."""
        firsts = np.cumsum([0, *(len(one.values) for one in parts)])
        ends = [one.ends + first for one, first in zip(parts, firsts, strict=False)]
        return cls(np.concatenate([one.values for one in parts]), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

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

    counts: uint8 (terms, fields). lengths: (records, fields). has_completed: whether the record
    has the field `completed`, (records,); all get it if one has it. excluded: each excluded use of
    any record. excluding: the record of each of these, in order.
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
    """Return packed records as one, one part behind the other."""
    if len(parts) == 1:
        return parts[0]
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


def pack_views(views: Sequence[RecordView]) -> PackedRecords:
    """Pack views, in their order."""
    columns = zip(*views, strict=True) if views else iter(((),) * len(RecordView._fields))
    keys, terms, counts, lengths, bigrams, weights, names, examples, excluded, hubness = columns
    stacked_counts, stacked_lengths = stack_fields(counts, lengths)
    return PackedRecords(
        keys=keys,
        terms=HashLists.join(terms),
        counts=stacked_counts,
        lengths=stacked_lengths,
        has_completed=np.array([len(one) > COMPLETED for one in lengths], dtype=np.bool_),
        bigrams=HashLists.join(bigrams),
        bigram_weights=np.concatenate(weights) if weights else np.empty(0, dtype=np.float32),
        names=HashLists.join(names),
        examples=HashLists.join(examples),
        excluded=HashLists.join(list(chain.from_iterable(excluded))),
        excluding=np.repeat(np.arange(len(keys)), [len(one) for one in excluded]),
        hubness=np.array(hubness, dtype=np.float64),
    )


def pack_records(records: Mapping[RevisionKey, ForwardRecord]) -> PackedRecords:
    """Pack records without hubness, in their order."""
    return pack_views([view_record(key, record) for key, record in records.items()])


def split_terms(records: PackedRecords, field: str) -> Iterable[TermIds]:
    """Yield the terms that each record has in a field."""
    present = records.counts[:, FIELDS.index(field)] > 0
    start = 0
    for end in records.terms.ends.tolist():
        yield records.terms.values[start:end][present[start:end]]
        start = end
