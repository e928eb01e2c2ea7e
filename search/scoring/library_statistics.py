"""Statistics of the published library: document frequencies and mean field lengths."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from search.completed_terms import COMPLETED
from search.packed_records import PackedRecords
from search.protocol import FIELDS, TermIds, Vector
from search.text.idf import compute_idf

_MAX_RECENT_TERMS = 50_000
"""Size of the dict at which it is merged into the sorted arrays."""

Counts = npt.NDArray[np.int32]


class TermCounts:
    """Counts of terms: sorted arrays, plus a dict of recently added terms.

    The cost of adding a few terms depends only on their number. Not thread-safe. counts: changed in
    place; of a mapped file, only the pages that change are copied.
    """

    def __init__(self, terms: TermIds | None = None, counts: Counts | None = None) -> None:
        self._terms = np.empty(0, dtype=np.uint64) if terms is None else terms
        self._counts = np.empty(0, dtype=np.int32) if counts is None else counts
        self._recent: dict[int, int] = {}

    def add(self, terms: TermIds, step: int) -> None:
        """Add `step` to the count of each of the terms, as often as it is given."""
        distinct, times = np.unique(terms, return_counts=True)
        steps = (step * times).astype(np.int32)
        places, known = self._find(distinct)
        self._counts[places[known]] += steps[known]
        for term, more in zip(distinct[~known].tolist(), steps[~known].tolist(), strict=True):
            self._recent[term] = self._recent.get(term, 0) + more
        if len(self._recent) > _MAX_RECENT_TERMS:
            self._merge()

    def get_counts(self, terms: TermIds) -> npt.NDArray[np.int64]:
        """Return the count of each term, int64 (len(terms),); 0 for unknown terms."""
        places, known = self._find(terms)
        found = np.zeros(len(terms), dtype=np.int64)
        found[known] = self._counts[places[known]]
        if self._recent:
            for place in np.flatnonzero(~known).tolist():
                found[place] = self._recent.get(int(terms[place]), 0)
        return found

    def get_all(self) -> tuple[TermIds, Counts]:
        """Return the terms, sorted, and their counts; they must not be changed."""
        self._merge()
        return self._terms, self._counts

    def _find(self, terms: TermIds) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        if not len(self._terms):
            return np.zeros(len(terms), dtype=np.intp), np.zeros(len(terms), dtype=np.bool_)
        places = np.minimum(np.searchsorted(self._terms, terms), len(self._terms) - 1)
        return places, self._terms[places] == terms

    def _merge(self) -> None:
        """Merge the recently added terms into the sorted arrays."""
        if not self._recent:
            return
        recent = np.array(sorted(self._recent), dtype=np.uint64)
        counted = np.array([self._recent[term] for term in recent.tolist()], dtype=np.int32)
        places = np.searchsorted(self._terms, recent)
        self._terms = np.insert(self._terms, places, recent)
        self._counts = np.insert(self._counts, places, counted)
        self._recent = {}


@dataclass(frozen=True, slots=True)
class SavedCounts:
    """Complete state of library statistics, to be stored.

    documents, names: terms with the number of revisions that have them anywhere, and in their name.
    lengths: sum of words per field, float64 (len(FIELDS),). completed: revisions with that field.
    """

    documents: tuple[TermIds, Counts]
    names: tuple[TermIds, Counts]
    lengths: npt.NDArray[np.float64]
    completed: int
    size: int


class LibraryStatistics:
    """Document frequencies (over any field) and lengths of published revisions.

    The numbers depend on which revisions were added, not on their order. The cost of adding or
    discarding one depends only on its number of terms. The caller must keep track of the revisions
    that were added. Threads may read while one writes.
    """

    def __init__(self, records: Iterable[PackedRecords] = ()) -> None:
        self._lock = threading.Lock()
        self._documents = TermCounts()
        self._names = TermCounts()
        self._lengths = np.zeros(len(FIELDS), dtype=np.float64)
        self._completed = 0
        self._size = 0
        for some in records:
            self.add(some)

    @classmethod
    def restore(cls, saved: SavedCounts) -> LibraryStatistics:
        """Return the statistics that were saved; their arrays are used, not copied."""
        restored = cls()
        restored._documents = TermCounts(*saved.documents)
        restored._names = TermCounts(*saved.names)
        restored._lengths = saved.lengths
        restored._completed, restored._size = saved.completed, saved.size
        return restored

    def save(self) -> SavedCounts:
        """Return the state that `restore` takes; it is valid until the next change."""
        with self._lock:
            return SavedCounts(
                self._documents.get_all(),
                self._names.get_all(),
                self._lengths,
                self._completed,
                self._size,
            )

    def __len__(self) -> int:
        return self._size

    @property
    def mean_lengths(self) -> Vector:
        """Mean words per field, float32 (len(FIELDS),); 1 for a field that is always empty.

        The mean of `completed` is over the revisions that have the field, so that its weight does
        not depend on how many revisions a language model has seen.
        """
        means = self._lengths / max(self._size, 1)
        if self._completed:
            means[COMPLETED] = self._lengths[COMPLETED] / self._completed
        return np.where(means > 0, means, 1.0).astype(np.float32)

    def add(self, records: PackedRecords) -> None:
        """Add revisions that were not added yet."""
        self._count(records, 1)

    def discard(self, records: PackedRecords) -> None:
        """Remove revisions that were added."""
        self._count(records, -1)

    def _count(self, records: PackedRecords, step: int) -> None:
        with self._lock:
            self._size += step * len(records)
            self._lengths[: records.lengths.shape[1]] += step * records.lengths.sum(axis=0)
            self._completed += step * int(records.has_completed.sum())
            self._documents.add(records.terms.values, step)
            self._names.add(records.names.values, step)

    def document_frequencies(self, terms: TermIds) -> npt.NDArray[np.int64]:
        """Return the number of revisions with each term in any field, int64 (len(terms),)."""
        with self._lock:
            return self._documents.get_counts(terms)

    def name_frequencies(self, terms: TermIds) -> npt.NDArray[np.int64]:
        """Return the number of revisions with each term in their name, int64 (len(terms),)."""
        with self._lock:
            return self._names.get_counts(terms)

    def idf(self, terms: TermIds) -> Vector:
        """Return ln(1 + (N - df + .5) / (df + .5)) of each term, float32; never negative."""
        with self._lock:  # df and N must be consistent: a df above N would make it negative
            found, size = self._documents.get_counts(terms), self._size
        return compute_idf(found, size).astype(np.float32)
