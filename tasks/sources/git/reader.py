"""A commit as a source of skills: the same skills, reasons and hashes as in a directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

import structlog

from config.errors import MisconfiguredError, PermanentError, TransientError, UsageError
from config.settings import LimitSettings, Settings
from graph.protocol import Source
from skills.parsing import sibling_files
from skills.record import SiblingFile
from tasks.sources.directory import SKILL_FILE, SkillFolder, SkillGoneError, SourceScan
from tasks.sources.git.mirror import Mirror
from tasks.sources.git.tree import Blob, CommitTree, ObjectReader, list_tree

log = structlog.get_logger()

_VIRTUAL_ENVIRONMENT = "pyvenv.cfg"
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""What stands in place of a file that large-file storage keeps, by its specification."""


@contextmanager
def open_git_reader(source: Source, settings: Settings) -> Iterator[GitReader]:
    """The reader of a git source at its commit.

    A mirror that has lost it, or one on another machine, fetches it; raises TransientError when
    it cannot be had now, PermanentError where the commit has no folder of the source's path.
    """
    mirror = Mirror(source, settings)
    try:
        mirror.ensure_commit(source.commit)
    except (PermanentError, TransientError, MisconfiguredError) as error:
        raise TransientError(
            f"source {source.source_id}: commit {source.commit[:12]} is not here: {error}"
        ) from None
    tree = list_tree(mirror.folder, source.commit, source.path, settings.git.files)
    objects = ObjectReader(mirror.folder, mirror.drop)
    try:
        yield GitReader(tree, objects, settings.limits)
    finally:
        objects.close()


class GitReader:
    """The skills of one commit. Links are not followed and submodules not entered."""

    def __init__(self, tree: CommitTree, objects: ObjectReader, limits: LimitSettings) -> None:
        self._tree = tree
        self._objects = objects
        self._limits = limits

    def scan(self, start: str) -> SourceScan:
        """Every skill at or below `start`; signatures cover names and objects, never the time."""
        found = SourceScan()
        records: dict[str, list[str]] = {}
        stack: list[tuple[str, str | None, int]] = [(start, None, start.count("/"))]
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
                if _VIRTUAL_ENVIRONMENT in self._tree.folders.get(inner, {}):
                    continue
                reason = self._find_skip_reason(inner, depth)
                if reason:
                    found.refused[_escape_non_utf8(inner)] = reason
                else:
                    stack.append((inner, owner, depth + 1))
        for path, record in records.items():
            digest = hashlib.blake2b("\n".join(sorted(record)).encode("utf-8", "surrogateescape"))
            found.signatures[path] = digest.hexdigest()[:32]
        self._refuse_others(start, found)
        return found

    def _find_skip_reason(self, folder: str, depth: int) -> str:
        if depth >= self._limits.depth:
            return f"deeper than {self._limits.depth} folders (limits.depth)"
        if _escape_non_utf8(folder) != folder:
            return "the folder's name is not UTF-8; rename it"
        return ""

    def _refuse_others(self, start: str, found: SourceScan) -> None:
        """Say of links and submodules where a skill would be why they are not read."""
        for path in self._tree.links:
            folder, _, name = path.rpartition("/")
            if name == SKILL_FILE and _is_below(folder, start):
                found.refused[_escape_non_utf8(folder)] = (
                    "its SKILL.md is a link; commit the file itself"
                )
        for path in self._tree.submodules:
            if _is_below(path, start) and self._owner(path, found) is None:
                found.refused[_escape_non_utf8(path)] = (
                    "a submodule; add its repository as a source of its own"
                )
        if self._tree.links:
            log.info("links in a repository are not followed", links=len(self._tree.links))

    def _owner(self, path: str, found: SourceScan) -> str | None:
        for folder in PurePosixPath(path).parents:
            name = "" if str(folder) == "." else str(folder)
            if name in found.signatures:
                return name
        return None

    def read(self, path: str) -> SkillFolder:
        """One skill's folder, hashed as `directory.read_folder` hashes the same files."""
        files = self._tree.folders.get(path, {})
        if SKILL_FILE not in files:
            raise SkillGoneError(f"{_joined(path, SKILL_FILE)} is gone")
        size = files[SKILL_FILE].size
        if size > self._limits.skill_bytes:
            raise PermanentError(
                f"{_joined(path, SKILL_FILE)}: {size} bytes; the limit is "
                f"{self._limits.skill_bytes} (limits.skill_bytes)"
            )
        others = dict(self._siblings(path))
        total = sum(blob.size for blob in others.values())
        if len(others) > self._limits.folder_files or total > self._limits.folder_bytes:
            raise PermanentError(
                f"{path}: more than {self._limits.folder_files} files or "
                f"{self._limits.folder_bytes} bytes beside SKILL.md (limits.folder_files, "
                "limits.folder_bytes)"
            )
        content = self._objects.read(files[SKILL_FILE])
        if content.startswith(_LFS_POINTER):
            raise PermanentError(
                f"{_joined(path, SKILL_FILE)} is kept in large-file storage, which is not read; "
                "commit the file itself"
            )
        listed = [
            SiblingFile(name, blob.size, self._objects.sha256(blob))
            for name, blob in others.items()
        ]
        listed.sort(key=lambda file: file.path)
        digest = hashlib.sha256(hashlib.sha256(content).digest())
        for file in listed:
            digest.update(f"{file.path}\0{file.size}\0{file.sha256}\n".encode("utf-8", "replace"))
        texts = sibling_files.read_selected_files(
            listed, lambda file: self._objects.read(others[file.path])
        )
        return SkillFolder(content, tuple(listed), digest.hexdigest(), texts)

    def _siblings(self, path: str) -> Iterator[tuple[str, Blob]]:
        """Files of a skill's folder by their path in it, without those of skills inside it."""
        stack = [path]
        while stack:
            folder = stack.pop()
            files = self._tree.folders.get(folder, {})
            if folder != path and (SKILL_FILE in files or _VIRTUAL_ENVIRONMENT in files):
                continue
            for name, blob in files.items():
                if folder != path or name != SKILL_FILE:
                    inner = _joined(folder, name)
                    yield _escape_non_utf8(inner[len(path) + 1 :] if path else inner), blob
            stack.extend(self._tree.subfolders.get(folder, ()))

    def find_owning_skill(self, path: str) -> str | None:
        """The nearest folder at or above `path` that is a skill, None without one."""
        current = PurePosixPath(path)
        for folder in (current, *current.parents):
            name = "" if str(folder) == "." else str(folder)
            if SKILL_FILE in self._tree.folders.get(name, {}):
                return name
        return None

    def check_relative_path(self, path: str) -> None:
        """Raise UsageError unless `path` is a clean relative path."""
        if path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
            raise UsageError(f"path {path!r} leads out of the source; paths are relative to it")


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _is_below(path: str, start: str) -> bool:
    return not start or path == start or path.startswith(start + "/")


def _escape_non_utf8(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")
