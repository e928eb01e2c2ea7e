"""Reader of a git source at a commit: the same skills, reasons and hashes as in a directory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

import structlog
from typing_extensions import override

from config.errors import PermanentError, TransientError
from config.settings import LimitSettings, Settings
from graph.records import Source
from skills.parsing import sibling_files
from skills.parsing.sibling_files import VIRTUAL_ENVIRONMENT_FILE
from skills.record import SiblingFile
from tasks.sources.folder_rules import (
    check_skill_file,
    escape_non_utf8,
    find_owner,
    find_skip_reason,
    folder_too_large,
    hash_skill_folder,
    sort_siblings,
)
from tasks.sources.git.mirror import Mirror
from tasks.sources.git.objects import ObjectReader
from tasks.sources.git.tree import Blob, CommitTree, UnreadableFolderError, list_tree
from tasks.sources.protocol import (
    SKILL_FILE,
    SkillFolder,
    SkillGoneError,
    SourceMissingError,
    SourceReader,
    SourceScan,
)

log = structlog.get_logger()


@contextmanager
def open_git_reader(source: Source, settings: Settings, folder: str = "") -> Iterator[GitReader]:
    """Open the reader of a git source at its commit. folder: list only this folder, as the reader's
    root.

    Fetches the commit if this machine's mirror does not hold it. Raises SourceMissingError if that
    fails or the mirror is damaged, PermanentError if the commit has no folder at the source's path.
    """
    mirror = Mirror(source, settings)
    try:
        mirror.ensure_commit(source.commit)
    except (PermanentError, TransientError) as error:
        raise SourceMissingError(
            f"source {source.source_id}: commit {source.commit[:12]} is not available: {error}"
        ) from None
    root = "/".join(filter(None, (source.path, folder)))
    try:
        tree = list_tree(mirror.folder, source.commit, root, settings.git.files)
    except UnreadableFolderError:
        if mirror.is_complete(source.commit):
            raise
        mirror.drop()
        raise SourceMissingError(
            f"source {source.source_id}: its mirror has lost objects; it is fetched again"
        ) from None
    objects = ObjectReader(mirror.folder, mirror.drop)
    try:
        yield GitReader(tree, objects, settings.limits)
    finally:
        objects.close()


class GitReader(SourceReader):
    """A `SourceReader` of the skills of one commit. Links are not followed and submodules not
    entered."""

    def __init__(self, tree: CommitTree, objects: ObjectReader, limits: LimitSettings) -> None:
        self._tree = tree
        self._objects = objects
        self._limits = limits

    @override
    def scan(self, start: str) -> SourceScan:
        """Return the scan; signatures cover names and objects of the files, no times."""
        found = SourceScan()
        records: dict[str, list[str]] = {}
        if not self._is_entered(start, found):
            return found
        depth = start.count("/") + 1 if start else 0
        stack: list[tuple[str, str | None, int]] = [(start, None, depth)]
        while stack:
            folder, owner, depth = stack.pop()
            files = self._tree.folders.get(folder, {})
            if SKILL_FILE in files:
                owner = folder
                records[owner] = []
                found.sizes[owner] = files[SKILL_FILE].size
            if owner is not None:
                lines = (f"{_joined(folder, name)}|{files[name].object_id}" for name in files)
                records[owner].extend(lines)
            for inner in self._tree.subfolders.get(folder, ()):
                environment = self._tree.folders.get(inner, {}).get(VIRTUAL_ENVIRONMENT_FILE)
                if environment:
                    if owner is not None:
                        records[owner].append(f"{inner}|{environment.object_id}")
                    continue
                reason = find_skip_reason(inner, depth, self._limits)
                if reason:
                    found.refused[escape_non_utf8(inner)] = reason
                else:
                    stack.append((inner, owner, depth + 1))
        for path, record in records.items():
            digest = hashlib.blake2b("\n".join(sorted(record)).encode("utf-8", "surrogateescape"))
            found.signatures[path] = digest.hexdigest()[:32]
        self._refuse_links_and_submodules(start, found)
        return found

    def _is_entered(self, path: str, found: SourceScan) -> bool:
        """Return whether a scan of the whole source enters a folder; adds the reason if not."""
        names = path.split("/") if path else []
        for depth in range(len(names)):
            folder = "/".join(names[: depth + 1])
            if VIRTUAL_ENVIRONMENT_FILE in self._tree.folders.get(folder, {}):
                return False
            is_folder = folder in self._tree.subfolders.get(folder.rpartition("/")[0], ())
            if is_folder and (reason := find_skip_reason(folder, depth, self._limits)):
                found.refused[escape_non_utf8(folder)] = reason
                return False
        return True

    def _is_visited(self, path: str) -> bool:
        return self._is_entered(path, SourceScan())

    def _refuse_links_and_submodules(self, start: str, found: SourceScan) -> None:
        """Add a reason for each link or submodule in place of a skill."""
        for path in self._tree.links:
            folder, _, name = path.rpartition("/")
            if name == SKILL_FILE and _is_below(folder, start) and self._is_visited(folder):
                found.refused[escape_non_utf8(folder)] = (
                    "its SKILL.md is a link; commit the file itself"
                )
        for path in self._tree.submodules:
            # Only then: a hostile path may have thousands of folders, of which few are visited.
            is_reported = _is_below(path, start) and self._is_visited(path)
            if is_reported and _find_outer_skill(path, found) is None:
                found.refused[escape_non_utf8(path)] = (
                    "a submodule; add its repository as another source"
                )
        if self._tree.links:
            log.info("links in a repository are not followed", links=len(self._tree.links))

    @override
    def read(self, path: str) -> SkillFolder:
        files = self._tree.folders.get(path, {})
        if SKILL_FILE not in files:
            raise SkillGoneError(f"{_joined(path, SKILL_FILE)} is gone")
        size = files[SKILL_FILE].size
        if size > self._limits.skill_bytes:
            raise PermanentError(
                f"{_joined(path, SKILL_FILE)}: {size} bytes; the limit is "
                f"{self._limits.skill_bytes} (limits.skill_bytes)"
            )
        others = list(self._list_siblings(path))
        total = sum(blob.size for _, blob in others)
        if len(others) > self._limits.folder_files or total > self._limits.folder_bytes:
            raise folder_too_large(path, self._limits)
        content = self._objects.read(files[SKILL_FILE])
        check_skill_file(_joined(path, SKILL_FILE), content)
        listed = sort_siblings(
            path,
            (SiblingFile(name, blob.size, self._objects.sha256(blob)) for name, blob in others),
        )
        blobs = dict(others)
        content_hash = hash_skill_folder(hashlib.sha256(content).digest(), listed)
        texts = sibling_files.read_selected_files(
            listed, lambda file: self._objects.read(blobs[file.path])
        )
        return SkillFolder(content, listed, content_hash, texts)

    @override
    def read_file(self, path: str, name: str, max_bytes: int) -> bytes:
        files = dict(self._list_siblings(path))
        own = self._tree.folders.get(path, {})
        if SKILL_FILE in own:
            files[SKILL_FILE] = own[SKILL_FILE]
        if name not in files:
            raise SkillGoneError(f"{_joined(path, name)} is gone")
        if files[name].size > max_bytes:
            raise PermanentError(
                f"{_joined(path, name)}: {files[name].size} bytes; the limit is {max_bytes}"
            )
        return self._objects.read(files[name])

    def _list_siblings(self, path: str) -> Iterator[tuple[str, Blob]]:
        """Yield the path in the skill's folder and the blob of each file, without files of skills
        inside it."""
        stack = [path]
        while stack:
            folder = stack.pop()
            files = self._tree.folders.get(folder, {})
            environment = files.get(VIRTUAL_ENVIRONMENT_FILE) if folder != path else None
            if environment:
                files = {VIRTUAL_ENVIRONMENT_FILE: environment}
            elif folder != path and SKILL_FILE in files:
                continue
            for name, blob in files.items():
                if folder != path or name != SKILL_FILE:
                    inner = _joined(folder, name)
                    yield escape_non_utf8(inner[len(path) + 1 :] if path else inner), blob
            if not environment:
                stack.extend(self._tree.subfolders.get(folder, ()))

    @override
    def find_owning_skill(self, path: str) -> str | None:
        return find_owner(path, self._is_skill)

    def _is_skill(self, folder: str) -> bool:
        is_file = SKILL_FILE in self._tree.folders.get(folder, {})
        return is_file and self._is_visited(folder)


def _find_outer_skill(path: str, found: SourceScan) -> str | None:
    """Return the nearest scanned skill above `path`."""
    return find_owner(str(PurePosixPath(path).parent), lambda name: name in found.signatures)


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _is_below(path: str, start: str) -> bool:
    return not start or path == start or path.startswith(start + "/")
