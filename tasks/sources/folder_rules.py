"""Rules for all kinds of sources: which folders to skip, and how to hash a skill's folder."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import PurePosixPath

from config.errors import PermanentError, UsageError
from config.settings import LimitSettings
from skills.parsing.sibling_files import VIRTUAL_ENVIRONMENT_FILE
from skills.record import SiblingFile
from tasks.sources.protocol import SKILL_FILE

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""Start of the placeholder for a file in large-file storage, by its specification."""

SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__"})


def find_skip_reason(name: str, depth: int, limits: LimitSettings) -> str:
    """Return why a folder is not entered, "" if it is. depth: number of folders above it."""
    if depth >= limits.depth:
        return f"deeper than {limits.depth} folders (limits.depth)"
    if escape_non_utf8(name) != name:
        return "the folder's name is not UTF-8; rename it"
    return ""


def escape_non_utf8(path: str) -> str:
    """Return a path from `os.fsdecode` with its non-UTF-8 bytes written as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def find_owner(path: str, is_skill: Callable[[str], bool]) -> str | None:
    """Return the nearest folder at or above `path` that is a skill ("" for the root), None if none
    is."""
    current = PurePosixPath(path)
    for folder in (current, *current.parents):
        name = "" if str(folder) == "." else str(folder)
        if is_skill(name):
            return name
    return None


def check_relative_path(path: str, source: str) -> None:
    """Raise UsageError unless `path` is relative and stays inside the source."""
    if path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
        raise UsageError(f"path {path!r} leads out of {source}; paths are relative to the source")


def sort_siblings(folder: str, files: Iterable[SiblingFile]) -> tuple[SiblingFile, ...]:
    """Return the files of a skill, sorted by path.

    Raises PermanentError if two have the same path: one would be read in place of the other.
    """
    found = tuple(sorted(files, key=lambda file: file.path))
    for one, following in pairwise(found):
        if one.path == following.path:
            raise PermanentError(
                f"{folder}: two files are named {one.path} if bytes that are not UTF-8 are written "
                "as escapes; rename one of them"
            )
    return found


def hash_skill_folder(skill_file_sha256: bytes, files: Iterable[SiblingFile]) -> str:
    """Return the content hash of a skill: over SKILL.md and the path, size and hash of each other
    file.

    files: sorted by path.
    """
    digest = hashlib.sha256(skill_file_sha256)
    for file in files:
        digest.update(f"{file.path}\0{file.size}\0{file.sha256}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def check_skill_file(file: str, content: bytes) -> None:
    """Raise PermanentError if a SKILL.md is only a pointer to large-file storage."""
    if content.startswith(_LFS_POINTER):
        raise PermanentError(
            f"{file} is a pointer to large-file storage (git LFS), which is not read; put the file "
            "itself in its place"
        )


def folder_too_large(folder: str, limits: LimitSettings) -> PermanentError:
    """Return the error for a skill with more files or bytes than the limits allow."""
    return PermanentError(
        f"{folder}: more than {limits.folder_files} files or {limits.folder_bytes} bytes except "
        "SKILL.md (limits.folder_files, limits.folder_bytes)"
    )


def find_environment(folder: str) -> str:
    """Return the file that makes a folder a virtual environment, "" without one.

    Only a readable regular file does: it is reported, while no other file of the folder is read.
    """
    path = os.path.join(folder, VIRTUAL_ENVIRONMENT_FILE)  # noqa: PTH118 - hot loop
    try:
        is_file = stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return ""
    return path if is_file and os.access(path, os.R_OK) else ""


def has_skill_file(entries: Iterable[os.DirEntry[str]]) -> bool:
    """Return whether a folder with these entries is a skill: its SKILL.md is no folder."""
    return any(entry.name == SKILL_FILE and not leads_to_folder(entry) for entry in entries)


def leads_to_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one; a loop of links is neither."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def no_skill_found(root: str) -> UsageError:
    """Return the error for a source without skills."""
    return UsageError(f"no SKILL.md found in {root}; name the folder that holds the skills")
