"""How the content of a source is read, whatever kind of source it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Protocol

from config.errors import UsageError
from config.settings import LimitSettings, Settings
from graph.protocol import Source
from tasks.sources.directory import (
    SKILL_FILE,
    SkillFolder,
    SkillGoneError,
    SourceScan,
    check_relative_path,
    find_owning_skill,
    read_skill_folder,
    scan,
)
from tasks.sources.git.reader import open_git_reader
from tasks.sources.uploads.store import UPLOAD_KIND, UploadReader


class SourceReader(Protocol):
    """The skills of one source at one moment. Paths are relative to the source, with `/`."""

    def scan(self, start: str) -> SourceScan:
        """Every skill at or below `start`; "" for all of the source."""
        ...

    def read(self, path: str) -> SkillFolder:
        """One skill's folder, hashed.

        Raises SkillGoneError when there is no skill any more, PermanentError for one that may not
        or cannot be read, TransientError when reading failed for a passing reason.
        """
        ...

    def find_owning_skill(self, path: str) -> str | None:
        """The nearest folder at or above `path` that is a skill, None without one."""
        ...

    def check_relative_path(self, path: str) -> None:
        """Raise UsageError unless `path` is a clean relative path that stays inside the source."""
        ...


class DirectoryReader:
    """A directory, read as it is at each call. `root` is absolute and without links."""

    def __init__(self, root: Path, limits: LimitSettings) -> None:
        self._root = root
        self._limits = limits

    def scan(self, start: str) -> SourceScan:
        """Every skill at or below `start`."""
        return scan(self._root, start, self._limits)

    def read(self, path: str) -> SkillFolder:
        """One skill's folder; errors as `tasks.sources.directory.read_folder` raises them."""
        return read_skill_folder(self._root, path, self._limits)

    def find_owning_skill(self, path: str) -> str | None:
        """The nearest folder at or above `path` that is a skill, None without one."""
        return find_owning_skill(self._root, path)

    def check_relative_path(self, path: str) -> None:
        """Raise UsageError unless `path` is a clean relative path that stays inside the root."""
        check_relative_path(self._root, path)


@contextmanager
def open_reader(source: Source, settings: Settings) -> Iterator[SourceReader]:
    """The reader of a source, released at the end of the block.

    Raises UsageError for a kind of source that this version does not know.
    """
    if source.kind == UPLOAD_KIND:
        yield UploadReader(source.source_id, settings)
        return
    if source.kind == "git":
        with open_git_reader(source, settings) as reader:
            yield reader
        return
    if source.kind != "directory":
        raise UsageError(f"source {source.source_id} is of an unknown kind, {source.kind}")
    yield DirectoryReader(Path(source.root), settings.limits)


def find_source(sources: Iterable[Source], source_id: str) -> Source | None:
    """The source of an id, None when there is none."""
    return next((one for one in sources if one.source_id == source_id), None)


def get_skill_location(sources: Iterable[Source], skill_id: str) -> str:
    """Where a skill's SKILL.md is, as it is shown.

    A path for a directory, else what the source is read from, two slashes and the path in it. Of a
    source that is not known, as while the catalog is away, the skill's id takes that place.
    """
    source_id, _, path = skill_id.partition(":")
    source = find_source(sources, source_id)
    if source is None:
        return f"{skill_id}/{SKILL_FILE}"
    if source.kind == "directory":
        return str(Path(source.root, path, SKILL_FILE))
    return f"{source.root}//{PurePosixPath(source.path, path, SKILL_FILE)}"


class ReaderPool:
    """Readers of several sources, each opened when it is first asked for; a context manager."""

    def __init__(self, sources: Mapping[str, Source], settings: Settings) -> None:
        self._sources = sources
        self._settings = settings
        self._opened: dict[str, SourceReader] = {}
        self._stack = ExitStack()

    def __enter__(self) -> ReaderPool:
        """Begin."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Release all readers."""
        self._stack.close()

    def get(self, source_id: str) -> SourceReader:
        """The reader of a source; raises SkillGoneError when the source is gone."""
        if source_id not in self._sources:
            raise SkillGoneError(f"source {source_id} is gone")
        if source_id not in self._opened:
            reader = open_reader(self._sources[source_id], self._settings)
            self._opened[source_id] = self._stack.enter_context(reader)
        return self._opened[source_id]
