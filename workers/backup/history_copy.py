"""The history in a backup of servers: the file that a home has."""

from __future__ import annotations

import sys
from pathlib import Path

from search.batches import batches
from search.revision_history import HistoryLimits, RevisionHistory
from tasks.history.sqlite import SqliteRevisionHistory
from workers.backup.index_copy import leave_one_file

_BATCH = 128
_EVERYTHING = HistoryLimits(sys.maxsize, sys.maxsize)


def copy_history(history: RevisionHistory, path: Path) -> None:
    """Copy all revisions into a new file."""
    target = SqliteRevisionHistory(path, _EVERYTHING)
    try:
        for batch in batches(history.read_all(), _BATCH):
            target.keep(batch)
    finally:
        target.close()
    leave_one_file(path)


def restore_history(path: Path, history: RevisionHistory) -> None:
    """Copy all revisions of a file; the limits of the settings apply."""
    source = SqliteRevisionHistory(path, _EVERYTHING)
    try:
        for batch in batches(source.read_all(), _BATCH):
            history.keep(batch)
    finally:
        source.close()
