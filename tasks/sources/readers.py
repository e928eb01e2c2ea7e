"""Functions that open the reader of a source: a directory, a git repository or uploads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from config.errors import TransientError, UsageError
from config.settings import Settings
from graph.protocol import Catalog
from graph.records import Source
from tasks.sources.directory import DirectoryReader
from tasks.sources.git.reader import open_git_reader
from tasks.sources.protocol import SKILL_FILE, SkillGoneError, SourceReader
from tasks.sources.uploads.reader import UploadReader
from tasks.sources.uploads.store import UPLOAD_KIND


@contextmanager
def open_reader(source: Source, settings: Settings) -> Iterator[SourceReader]:
    """Open the reader of a source, released at the end of the block.

    Raises UsageError for an unknown kind of source.
    """
    if source.kind == UPLOAD_KIND:
        yield UploadReader(source.source_id, settings)
        return
    if source.kind == "git":
        with open_git_reader(source, settings) as reader:
            yield reader
        return
    if source.kind != "directory":
        raise UsageError(f"source {source.source_id} has the unknown kind {source.kind}")
    yield DirectoryReader(Path(source.root), settings.limits)


ReadFile = Callable[[str, int], bytes]
"""Function that reads one file of a skill's folder: path in the folder, maximum bytes."""


@contextmanager
def open_skill_folder(source: Source, path: str, settings: Settings) -> Iterator[ReadFile]:
    """Yield a function that reads single files of one skill's folder; raises as
    `SourceReader.read_file` does.

    For a git source only the folder is listed, not the whole commit.
    """
    if source.kind == "git":
        with open_git_reader(source, settings, path) as git_reader:
            yield partial(git_reader.read_file, "")
        return
    with open_reader(source, settings) as reader:
        yield partial(reader.read_file, path)


def find_source(sources: Iterable[Source], source_id: str) -> Source | None:
    """Return the source with this id, None without one."""
    return next((one for one in sources if one.source_id == source_id), None)


def get_source_folder(source: Source) -> str:
    """Return where the skills of a source are, for display, with a slash at the end: the path of a
    directory, else `<root of the source>//<path in it>/`."""
    if source.kind == "directory":
        return f"{Path(source.root)}/"
    return f"{source.root}//" + (f"{PurePosixPath(source.path)}/" if source.path else "")


def get_skill_location(sources: Iterable[Source], skill_id: str) -> str:
    """Return where a skill's SKILL.md is, for display.

    For an unknown source, as while the catalog is away, `<skill id>/SKILL.md`.
    """
    source_id, _, path = skill_id.partition(":")
    source = find_source(sources, source_id)
    if source is None:
        return f"{skill_id}/{SKILL_FILE}"
    return get_source_folder(source) + str(PurePosixPath(path, SKILL_FILE))


class ReaderPool:
    """Readers of several sources, each opened on first use; a context manager."""

    def __init__(self, sources: Mapping[str, Source], settings: Settings) -> None:
        self._sources = sources
        self._settings = settings
        self._opened: dict[str, SourceReader] = {}
        self._unavailable: dict[str, TransientError] = {}
        self._stack = ExitStack()

    def __enter__(self) -> ReaderPool:
        """Return itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Release all readers."""
        self._stack.close()

    def get(self, source_id: str) -> SourceReader:
        """Return the reader of a source.

        Raises SkillGoneError if the source is gone, TransientError if it cannot be opened now: the
        same error again without another attempt, which may take as long as a fetch.
        """
        if source_id not in self._sources:
            raise SkillGoneError(f"source {source_id} is gone")
        if source_id in self._unavailable:
            raise self._unavailable[source_id]
        if source_id not in self._opened:
            reader = open_reader(self._sources[source_id], self._settings)
            try:
                self._opened[source_id] = self._stack.enter_context(reader)
            except TransientError as error:
                self._unavailable[source_id] = error
                raise
        return self._opened[source_id]


def ensure_source(graph: Catalog, source: Source) -> None:
    """Add a source to the catalog, unless it is there: the time of its last sync stays.

    Raises UsageError if the catalog has another source under its id.
    """
    known = find_source(graph.list_sources(), source.source_id)
    wanted = replace(source, last_success=known.last_success) if known else source
    if wanted != known:
        graph.save_source(wanted)
