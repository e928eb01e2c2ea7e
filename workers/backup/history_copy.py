"""The history in a backup of servers, as the file `history.db` that a home has."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import closing
from itertools import chain
from pathlib import Path

from search.review_store import ReviewStore
from search.revision_history import HistoryLimits, RevisionHistory
from skills.batches import batches
from tasks.history.sqlite import SqliteRevisionHistory
from tasks.history.sqlite_reviews import SqliteReviewStore
from workers.backup.index_copy import leave_one_file

_BATCH = 128
_EVERYTHING = HistoryLimits(sys.maxsize, sys.maxsize)


def copy_history(history: RevisionHistory, reviews: ReviewStore, path: Path) -> None:
    """Copy all revisions, pins and reviews into a new file."""
    with closing(SqliteRevisionHistory(path, _EVERYTHING)) as target:
        _copy(history, target)
    with closing(SqliteReviewStore(path)) as store:
        _copy_reviews(reviews, store)
    leave_one_file(path)


def restore_history(path: Path, history: RevisionHistory, reviews: ReviewStore) -> None:
    """Copy all revisions, pins and reviews of a file; the limits of the settings apply to revisions
    that are not pinned."""
    # Opening a file changes it, so a copy of the backup's file is opened.
    with tempfile.TemporaryDirectory() as folder:
        opened = shutil.copyfile(path, Path(folder) / path.name)
        with closing(SqliteRevisionHistory(opened, _EVERYTHING)) as source:
            _copy(source, history)
        with closing(SqliteReviewStore(opened)) as store:
            _copy_reviews(store, reviews)


def _copy_reviews(source: ReviewStore, target: ReviewStore) -> None:
    records = source.get_all().by_skill.values()
    for batch in batches(list(chain.from_iterable(records)), _BATCH):
        target.save(batch)


def _copy(source: RevisionHistory, target: RevisionHistory) -> None:
    """Copy revisions and pins, pinned revisions first, so that later ones do not supplant them."""
    pins = source.get_pins()
    for skill_id, pin in pins.items():
        target.keep([one for one in source.list_revisions(skill_id) if one.key.seq == pin.seq])
        target.set_pin(pin)
    for batch in batches(source.read_all(), _BATCH):
        target.keep(batch)
