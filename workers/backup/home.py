"""Backup and restoration of an embedded library: the databases and the index of a home."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from config.errors import UsageError
from config.settings import Settings
from graph.local.store import SqliteSkillGraph
from search.local.index import LocalSearchIndex
from search.models.load_models import encoder_identity
from tasks.ingest.upgrade.reindex import ReportProgress
from tasks.sources.uploads.store import copy_uploads, uploads_folder
from workers.backend.home import WriterLock, create_home
from workers.backend.stores import require_library
from workers.backup.folder import (
    INDEX,
    UPLOADS,
    Manifest,
    copy_folder,
    create_folder,
    read_manifest,
    require_no_uploads,
    write_manifest,
)
from workers.backup.index_copy import copy_database, copy_revisions

_CATALOG = "graph.db"
_DATABASES = ("journal.db", "outcomes.db", "evaluations.db", "answers.db", "history.db", _CATALOG)
"""Databases in the order of the copy: the copied catalog is not older than the copied journal and
history. It thus has every event that the journal calls done, and every seq of the history."""


def back_up_home(settings: Settings, folder: Path, progress: ReportProgress) -> Manifest:
    """Copy the library of a home into a new folder, while other processes may use it.

    Raises UsageError if there is no library, or the folder is not empty.
    """
    home, identity = settings.home, encoder_identity(settings.encoder)
    require_library(settings)
    # Raises for an index of another encoder before anything is written.
    with closing(LocalSearchIndex(home / INDEX, *identity, writable=False)) as index:
        create_folder(folder)
        for name in _DATABASES:
            if (home / name).exists():
                copy_database(home / name, folder / name)
        with closing(SqliteSkillGraph(folder / _CATALOG, writable=False)) as catalog:
            pointers = catalog.get_changes_since(0).pointers
        missing = copy_revisions(index, identity, pointers, folder / INDEX, progress)
    copy_uploads(uploads_folder(settings), folder / UPLOADS)
    return write_manifest(folder, "home", identity, sum(map(bool, pointers.values())), missing)


def restore_home(settings: Settings, folder: Path) -> Manifest:
    """Copy a backup into a home without a library.

    Raises UsageError if the home has a library, or if the backup is damaged or incomplete; nothing
    is written then.
    """
    manifest = read_manifest(folder, "home")
    home, uploads = settings.home, uploads_folder(settings)
    _require_empty(home, uploads)
    create_home(home)
    lock = WriterLock(home)
    lock.acquire()
    try:
        _require_empty(home, uploads)  # another process may have had the lock
        copy_uploads(folder / UPLOADS, uploads)
        copy_folder(folder / INDEX, home / INDEX)
        # The catalog is last, as commands recognise a library by it.
        for name in _DATABASES:
            if name in manifest.files:
                shutil.copyfile(folder / name, home / name)
    except OSError as error:
        raise UsageError(
            f"the backup was restored in part: {error}; empty {home} and restore again"
        ) from error
    finally:
        lock.release()
    return manifest


def _require_empty(home: Path, uploads: Path) -> None:
    """Raise UsageError if the home has a file of a library, or the folder of uploads has a file."""
    files = [home / f"{name}{suffix}" for name in _DATABASES for suffix in ("", "-wal")]
    for path in (*files, home / INDEX):
        if path.exists():
            # SQLite would write the changes of a left log into the restored file.
            raise UsageError(f"{path} exists: restore into a home without a library")
    require_no_uploads(uploads)
