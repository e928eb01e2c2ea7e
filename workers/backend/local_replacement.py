"""Replacement of the index of a home by an index for another model or schema."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from config.errors import NothingToDoError, UsageError
from search.local.index import STORAGE_VERSION, LocalSearchIndex, index_identity
from search.local.revision_store import read_identity
from tasks.ingest.upgrade.reindex import IndexReplacement
from workers.backend.home import WriterLock

_LIVE, _NEW, _OLD = "index", "index.new", "index.old"


class LocalReplacement(IndexReplacement):
    """The index of a home as `source`, and a new index for the current settings as `target`.

    The source stays complete and readable, also after the switch, until it is deleted. Raises
    NothingToDoError if the index is that of the settings, UsageError if there is none or this
    version cannot read it.
    """

    def __init__(self, home: Path, model: str, dimension: int) -> None:
        self._home = home
        self._lock = WriterLock(home)
        live = read_identity(home / _LIVE)
        if live is None:
            raise UsageError(f"no library in {home} yet; run `skillbus sync DIR` first")
        if live == index_identity(model, dimension):
            raise NothingToDoError(
                f"the index in use was built with {model} and has the current schema: nothing to do"
            )
        self.same_model = (live["model"], live["dimension"]) == (model, str(dimension))
        self.source = open_earlier_index(home / _LIVE, live)
        self.target = self._open_target(model, dimension)

    def _open_target(self, model: str, dimension: int) -> LocalSearchIndex:
        """Open the new index; an earlier copy for another model or schema is deleted."""
        folder = self._home / _NEW
        begun = read_identity(folder)
        if begun is not None and begun != index_identity(model, dimension):
            shutil.rmtree(folder)
        return LocalSearchIndex(folder, model, dimension, writable=True)

    @property
    def names(self) -> tuple[str, str]:
        """Folders of the old and the new index after the switch."""
        return str(self._home / _OLD), str(self._home / _LIVE)

    @override
    def block_writes(self) -> None:
        try:
            self._lock.acquire()
        except UsageError as error:
            raise UsageError(
                f"the new index is ready, but {error}. Stop it and run `skillbus reindex` again; "
                "what was copied is kept"
            ) from error

    @override
    def allow_writes(self) -> None:
        self._lock.release()

    @override
    def switch(self) -> None:
        self.target.close()
        if (self._home / _OLD).exists():
            shutil.rmtree(self._home / _OLD)
        (self._home / _LIVE).rename(self._home / _OLD)
        (self._home / _NEW).rename(self._home / _LIVE)

    def close(self) -> None:
        """Release files and the lock."""
        self.source.close()
        self.target.close()
        self._lock.release()


def open_earlier_index(folder: Path, identity: Mapping[str, str]) -> LocalSearchIndex:
    """Open an index of this version or an earlier one, for reading.

    identity: as `read_identity` returns it. Raises UsageError if this version cannot read it.
    """
    schema = identity["schema"]
    if schema.partition(".")[0] != str(STORAGE_VERSION):
        raise UsageError(
            f"this version cannot read the index in {folder} (schema {schema}); set SKILLBUS_HOME "
            "to an empty folder and sync the sources"
        )
    return LocalSearchIndex(
        folder, identity["model"], int(identity["dimension"]), writable=False, schema=schema
    )


def list_other_indexes(home: Path) -> list[str]:
    """Return the folders of indexes other than the one in use: replaced, or of a reindex."""
    return [str(home / name) for name in (_OLD, _NEW) if (home / name).exists()]


def drop_superseded_index(home: Path) -> list[str]:
    """Delete the index that an earlier reindex of a home replaced, and return its folder."""
    old = home / _OLD
    if not old.exists():
        return []
    shutil.rmtree(old)
    return [str(old)]
