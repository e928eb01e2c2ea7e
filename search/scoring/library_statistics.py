"""Statistics of the published library: document frequencies, mean field lengths, hubness."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from search.completed_terms import COMPLETED
from search.protocol import FIELDS, ForwardRecord, TermIds, Vector
from search.scoring.hubness import compute_hubness
from search.scoring.weights import ScoringWeights
from search.text.background_frequencies import load_background
from skills.record import RevisionKey

_MAX_RECENT_TERMS = 50_000
_NAME = FIELDS.index("name")


class TermCounts:
    """Counts of terms: sorted arrays, plus a dict of recently added terms.

    The cost of `add` depends only on the number of terms given. Not thread-safe.
    """

    def __init__(self, lists: Sequence[TermIds] = ()) -> None:
        together = np.concatenate(lists) if lists else np.empty(0, dtype=np.uint64)
        self._terms, counted = np.unique(together, return_counts=True)
        self._counts = counted.astype(np.int64)
        self._recent: dict[int, int] = {}

    def add(self, terms: TermIds, step: int) -> None:
        """Add `step` to the count of each of the (distinct) terms."""
        places, known = self._find(terms)
        self._counts[places[known]] += step
        for term in terms[~known].tolist():
            self._recent[term] = self._recent.get(term, 0) + step
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

    def _find(self, terms: TermIds) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        if not len(self._terms):
            return np.zeros(len(terms), dtype=np.intp), np.zeros(len(terms), dtype=np.bool_)
        places = np.minimum(np.searchsorted(self._terms, terms), len(self._terms) - 1)
        return places, self._terms[places] == terms

    def _merge(self) -> None:
        """Merge the recently added terms into the sorted arrays."""
        recent = np.array(sorted(self._recent), dtype=np.uint64)
        counted = np.array([self._recent[term] for term in recent.tolist()], dtype=np.int64)
        places = np.searchsorted(self._terms, recent)
        self._terms = np.insert(self._terms, places, recent)
        self._counts = np.insert(self._counts, places, counted)
        self._recent = {}


class LibraryStatistics:
    """Document frequencies (over any field), lengths and forward records of published revisions.

    The numbers depend on which revisions were added, not on their order. The cost of adding or
    discarding one depends only on its number of terms. Threads may read while one writes.
    """

    def __init__(self, records: Mapping[RevisionKey, ForwardRecord] | None = None) -> None:
        self._lock = threading.Lock()
        self._records = dict(records or {})
        everything = self._records.values()
        self._documents = TermCounts([record.terms for record in everything])
        self._names = TermCounts([name_terms(record) for record in everything])
        self._lengths = np.zeros(len(FIELDS), dtype=np.float64)
        self._completed = 0
        for record in everything:
            self._measure(record, 1)
        self._hubs: dict[RevisionKey, float] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: RevisionKey) -> bool:
        return key in self._records

    @property
    def mean_lengths(self) -> Vector:
        """Mean words per field, float32 (len(FIELDS),); 1 for a field that is always empty.

        That of `completed` is over the revisions that have it, so that the weight of the field
        does not depend on how many a language model has seen.
        """
        means = self._lengths / max(len(self._records), 1)
        if self._completed:
            means[COMPLETED] = self._lengths[COMPLETED] / self._completed
        return np.where(means > 0, means, 1.0).astype(np.float32)

    def add(self, key: RevisionKey, record: ForwardRecord) -> None:
        """Add a revision, unless it was added already."""
        with self._lock:
            if key not in self._records:
                self._records[key] = record
                self._count(record, 1)

    def discard(self, key: RevisionKey) -> None:
        """Remove a revision, if it was added."""
        with self._lock:
            record = self._records.pop(key, None)
            self._hubs.pop(key, None)
            if record is not None:
                self._count(record, -1)

    def _count(self, record: ForwardRecord, step: int) -> None:
        self._measure(record, step)
        self._documents.add(record.terms, step)
        self._names.add(name_terms(record), step)

    def _measure(self, record: ForwardRecord, step: int) -> None:
        width = len(record.lengths)
        self._lengths[:width] += step * record.lengths.astype(np.float64)
        self._completed += step * (width > COMPLETED)

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
            found, size = self._documents.get_counts(terms), len(self._records)
        return np.log1p((size - found + 0.5) / (found + 0.5)).astype(np.float32)

    def get_hubness(
        self, keys: Sequence[RevisionKey], records: Sequence[ForwardRecord]
    ) -> npt.NDArray[np.float64]:
        """Return the hubness of each revision, (len(keys),); computed once per revision."""
        found = {key: self._hubs.get(key) for key in keys}
        fresh = [place for place, key in enumerate(keys) if found[key] is None]
        if fresh:
            scores = compute_hubness(
                [records[place] for place in fresh], load_background(), ScoringWeights()
            )
            computed = dict(zip([keys[place] for place in fresh], scores.tolist(), strict=True))
            found |= computed
            with self._lock:
                # A revision that was discarded meanwhile would never be removed.
                self._hubs |= {key: computed[key] for key in computed if key in self._records}
        return np.array([found[key] for key in keys], dtype=np.float64)

    def get_records(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        """Return the forward records of those of the revisions that were added."""
        found = {}
        for key in keys:
            record = self._records.get(key)
            if record is not None:
                found[key] = record
        return found

    def missing_keys(self, keys: Iterable[RevisionKey]) -> list[RevisionKey]:
        """Return the keys that were not added."""
        return [key for key in keys if key not in self._records]


def name_terms(record: ForwardRecord) -> TermIds:
    """Return the terms of a revision's name, sorted."""
    return record.terms[record.counts[:, _NAME].nonzero()[0]]
