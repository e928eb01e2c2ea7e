"""Where queries get the records of candidates from, by revision."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from typing_extensions import override

from search.batches import batches
from search.completed_terms import use_completed
from search.packed_records import PackedRecords, RecordView, pack_views, view_record
from search.protocol import SearchIndex
from search.scoring.hubness import compute_hubness
from search.scoring.weights import ScoringWeights
from search.text.background_frequencies import load_background
from skills.record import RevisionKey

BATCH_RECORDS = 2_000
"""Records that are counted at once: some megabytes."""


class RecordSource(Protocol):
    """Records of revisions, with the completions in use. Threads may share it."""

    def pack(self, keys: Sequence[RevisionKey]) -> PackedRecords:
        """Return the records of those of the revisions that are there, in any order, with
        hubness."""
        ...

    def read(self, keys: Sequence[RevisionKey]) -> Iterator[PackedRecords]:
        """Yield the records of those of the revisions that are there, some at a time, to count
        them; hubness may be missing.

        Revisions have to be read once before `pack` finds them. Raises TransientError if the
        store does not answer.
        """
        ...

    def release(self, keys: Sequence[RevisionKey]) -> None:
        """Forget superseded revisions, once no query can need them any more."""
        ...


class KeptViews:
    """Records in memory. Threads may share it.

    keep_seconds: how long released records stay: a query keeps the pointers that it started with,
    while another one may load newer ones.
    """

    def __init__(self, keep_seconds: float) -> None:
        self._keep_seconds = keep_seconds
        self._views: dict[RevisionKey, RecordView] = {}
        self._released: dict[RevisionKey, float] = {}

    def get(self, key: RevisionKey) -> RecordView | None:
        """Return the record of a revision, None if it is not kept."""
        return self._views.get(key)

    def keep(self, views: Iterable[RecordView]) -> None:
        """Keep records until they are released."""
        self._views |= {view.key: view for view in views}

    def complete(self, views: Sequence[RecordView]) -> list[RecordView]:
        """Return views with hubness, which is kept with those that are."""
        if not any(map(_lacks_hubness, views)):
            return list(views)
        completed = add_hubness(views)
        # One that was forgotten meanwhile would never be removed.
        self.keep(view for view in completed if view.key in self._views)
        return completed

    def list_keys(self) -> list[RevisionKey]:
        """Return the revisions whose records are kept."""
        return list(self._views)

    def drop(self, keys: Iterable[RevisionKey]) -> None:
        """Forget records now; others are ignored."""
        for key in keys:
            self._views.pop(key, None)
            self._released.pop(key, None)

    def release(self, keys: Iterable[RevisionKey]) -> None:
        """Forget records after a while."""
        now = time.monotonic()
        due = [key for key, at in self._released.items() if now - at >= self._keep_seconds]
        self.drop(due)
        self._released |= dict.fromkeys((key for key in keys if key in self._views), now)


class MemoryRecords(RecordSource):
    """Keeps all records that were read in memory, for an index on a server.

    origins: of the completions in use. keep_seconds: as of `KeptViews`.
    """

    def __init__(
        self, index: SearchIndex, origins: Collection[str] = (), keep_seconds: float = 0.0
    ) -> None:
        self._index = index
        self._origins = frozenset(origins)
        self._kept = KeptViews(keep_seconds)

    @override
    def pack(self, keys: Sequence[RevisionKey]) -> PackedRecords:
        views = [view for key in keys if (view := self._kept.get(key)) is not None]
        return pack_views(self._kept.complete(views))

    @override
    def read(self, keys: Sequence[RevisionKey]) -> Iterator[PackedRecords]:
        for batch in batches(keys, BATCH_RECORDS):
            views = self._read_views(batch)
            packed = pack_views(views)
            if any(map(_lacks_hubness, views)):
                # Now, while a worker starts, and not in the first query that has them.
                hubness = compute_hubness(packed, load_background(), ScoringWeights())
                self._kept.keep(map(_with_hubness, views, hubness.tolist()))
                packed = replace(packed, hubness=hubness)
            yield packed

    def _read_views(self, keys: Sequence[RevisionKey]) -> list[RecordView]:
        missing = [key for key in keys if self._kept.get(key) is None]
        if missing:
            found = self._index.get_forward_records(missing).items()
            self._kept.keep(view_record(key, use_completed(r, self._origins)) for key, r in found)
        return [view for key in keys if (view := self._kept.get(key)) is not None]

    @override
    def release(self, keys: Sequence[RevisionKey]) -> None:
        self._kept.release(keys)


def _lacks_hubness(view: RecordView) -> bool:
    return math.isnan(view.hubness)


def _with_hubness(view: RecordView, hubness: float) -> RecordView:
    return view._replace(hubness=hubness)


def add_hubness(views: Sequence[RecordView]) -> list[RecordView]:
    """Return views with hubness, which is computed where it is missing."""
    lacking = pack_views([view for view in views if _lacks_hubness(view)])
    computed = iter(compute_hubness(lacking, load_background(), ScoringWeights()).tolist())
    return [
        view._replace(hubness=next(computed)) if _lacks_hubness(view) else view for view in views
    ]
