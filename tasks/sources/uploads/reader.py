"""Reader of an upload source: the skills in the upload store."""

from __future__ import annotations

import structlog
from typing_extensions import override

from config.errors import PermanentError
from config.settings import Settings
from tasks.sources.folder_rules import find_owner
from tasks.sources.protocol import SkillFolder, SourceReader, SourceScan
from tasks.sources.uploads.store import open_upload_store

log = structlog.get_logger()


class UploadReader(SourceReader):
    """Reads the skills of an upload source.

    The list of skills is read once, the files of each skill at each call.
    """

    def __init__(self, source_id: str, settings: Settings) -> None:
        self._source_id = source_id
        self._store = open_upload_store(settings)
        self._max_skill_bytes = settings.limits.skill_bytes
        self._listed: tuple[list[str], list[PermanentError]] | None = None

    @override
    def scan(self, start: str) -> SourceScan:
        """Return the scan; signatures are content hashes.

        A damaged package whose path is only in it may be of any skill, so that none counts as gone.
        """
        if self._listed is None:
            self._listed = self._store.list_paths(self._source_id)
            for error in self._listed[1]:
                log.warning("package cannot be read", source=self._source_id, reason=str(error))
        paths, damaged = self._listed
        found = SourceScan(unreadable=[""] if damaged else [])
        for path in paths:
            if start and path != start and not path.startswith(start + "/"):
                continue
            try:
                signature = self._store.get_signature(self._source_id, path)
            except PermanentError as error:
                found.refused[path] = str(error)
                continue
            if signature is not None:
                found.signatures[path], found.sizes[path] = signature
        return found

    @override
    def read(self, path: str) -> SkillFolder:
        return self._store.read(self._source_id, path, self._max_skill_bytes)

    @override
    def read_file(self, path: str, name: str, max_bytes: int) -> bytes:
        return self._store.read_file(self._source_id, path, name, max_bytes)

    @override
    def find_owning_skill(self, path: str) -> str | None:
        return find_owner(path, lambda folder: self._store.has_skill(self._source_id, folder))
