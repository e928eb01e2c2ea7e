"""The history in a backup of servers: the file that a home has."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from search.batches import batches
from search.revision_history import HistoryLimits, RevisionHistory
from tasks.history.sqlite import SqliteRevisionHistory
from workers.backup.index_copy import leave_one_file

_BATCH = 128
_EVERYTHING = HistoryLimits(sys.maxsize, sys.maxsize)


def copy_history(history: RevisionHistory, path: Path) -> None:
    """Copy all revisions and pins into a new file."""
    target = SqliteRevisionHistory(path, _EVERYTHING)
    try:
        _copy(history, target)
    finally:
        target.close()
    leave_one_file(path)


def restore_history(path: Path, history: RevisionHistory) -> None:
    """Copy all revisions and pins of a file; the limits of the settings apply to others than
    pinned ones."""
    # A copy, since opening a file changes it, and a backup is not to be changed.
    with tempfile.TemporaryDirectory() as folder:
        opened = shutil.copy(path, folder)
        source = SqliteRevisionHistory(opened, _EVERYTHING)
        try:
            _copy(source, history)
        finally:
            source.close()


def _copy(source: RevisionHistory, target: RevisionHistory) -> None:
    """A pinned revision is copied and pinned first, so that later ones do not supplant it."""
    pins = source.get_pins()
    for skill_id, pin in pins.items():
        target.keep([one for one in source.list_revisions(skill_id) if one.key.seq == pin.seq])
        target.set_pin(pin)
    for batch in batches(source.read_all(), _BATCH):
        target.keep(batch)
