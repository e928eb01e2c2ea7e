"""The search index of a backup: an embedded index, whichever engine the library uses."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from config.errors import TransientError, UsageError
from search.local.index import LocalSearchIndex
from search.models.identity import EncoderIdentity
from search.protocol import SearchIndex
from skills.record import RevisionKey
from tasks.ingest.upgrade.reindex import IndexCopier, ReportProgress


def copy_revisions(
    source: SearchIndex,
    identity: EncoderIdentity,
    pointers: Mapping[str, int],
    folder: Path,
    progress: ReportProgress,
) -> int:
    """Copy the published revisions with their vectors into a new index in `folder`.

    pointers: skill id -> published seq. Returns the number of revisions that
    the source no longer has.
    """
    keys = [RevisionKey(skill_id, seq) for skill_id, seq in pointers.items() if seq]
    target = LocalSearchIndex(folder, identity.model, identity.dimension, writable=True)
    try:
        IndexCopier(source, target, identity.model).copy_revisions(keys, progress)
        missing = len(keys) - len(target.complete_keys(keys))
    finally:
        target.close()
    for path in folder.glob("*.sqlite"):
        leave_one_file(path)
    return missing


def copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite file in the state of one moment; other processes may write to it meanwhile.

    Raises UsageError for a damaged file, TransientError if it is busy or the disk is full.
    """
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as opened,
            closing(sqlite3.connect(target)) as copied,
        ):
            opened.backup(copied)
    except sqlite3.DatabaseError as error:
        problem = f"{source} cannot be copied to {target}: {error}"
        if isinstance(error, sqlite3.OperationalError):
            raise TransientError(problem) from error
        raise UsageError(problem) from error
    leave_one_file(target)


def leave_one_file(path: Path) -> None:
    """Turn off write-ahead logging of a SQLite file, so that it needs no other files."""
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("PRAGMA journal_mode = DELETE")
