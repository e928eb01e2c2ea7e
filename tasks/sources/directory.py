"""Directories as sources: scanned for skills, whose folders are read one at a time.

Symbolic links are never followed out of the root.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from pathlib import Path

from typing_extensions import override

from config.errors import PermanentError, TransientError, UsageError
from config.settings import LimitSettings
from skills.parsing.parse_skill import ParseLimits
from tasks.sources.folder_rules import (
    SKIPPED_FOLDERS,
    check_relative_path,
    escape_non_utf8,
    find_environment,
    find_owner,
    find_skip_reason,
    has_skill_file,
    leads_to_folder,
)
from tasks.sources.protocol import (
    SKILL_FILE,
    SkillFolder,
    SourceMissingError,
    SourceReader,
    SourceScan,
)
from tasks.sources.skill_folder import (
    find_listed,
    read_regular_file,
    read_skill_folder,
    resolve_path,
)

_SETTLED_SECONDS = 0.1
"""Seconds, longer than the clock tick of common file systems, after which a later write changes a
file's time."""


def to_parse_limits(limits: LimitSettings) -> ParseLimits:
    """Return the limits of the parser, from the settings."""
    return ParseLimits(max_bytes=limits.skill_bytes)


def resolve_root(root: Path) -> Path:
    """Return the root as an absolute path without links; raises UsageError if it cannot be
    listed."""
    try:
        resolved = resolve_path(root.expanduser())
        if not resolved.is_dir():
            raise UsageError(f"{root} is a file; give the folder that holds the skills")
        str(resolved).encode()
        with os.scandir(resolved):
            return resolved
    except UnicodeEncodeError:
        shown = str(root).encode("utf-8", "backslashreplace").decode()
        raise UsageError(f"the path {shown} is not UTF-8 text; rename the folder") from None
    except (FileNotFoundError, RuntimeError):  # RuntimeError: `~` of a user that does not exist
        raise UsageError(f"{root} does not exist; give the folder that holds the skills") from None
    except OSError as error:
        raise UsageError(f"{root} cannot be read: {error.strerror}") from error


def scan(root: Path, start: str, limits: LimitSettings) -> SourceScan:
    """Return every skill at or below `start` (a path in the root, "" for all of it).

    Signatures cover names, sizes and times of the files. Raises TransientError if the root was
    moved, replaced or mounted meanwhile: skills that were not found then are not gone.
    """
    before = identify_folder(root)
    found = _walk(root, start, limits)
    if before is None or identify_folder(root) != before:
        raise TransientError(f"{root} was moved or replaced while it was read")
    return found


def describe_missing_root(root: str) -> str:
    """Return the message about the root of a source that is missing."""
    return f"{root} is missing or cannot be reached; its skills stay as they are"


def identify_folder(folder: Path) -> tuple[int, int] | None:
    """Return device and inode of a folder, None if it is missing or cannot be reached."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _walk(root: Path, start: str, limits: LimitSettings) -> SourceScan:
    found = SourceScan()
    records: dict[str, list[str]] = {}
    fresh: set[str] = set()
    settled = time.time() - _SETTLED_SECONDS
    if not _is_entered(root, start, limits, found):
        return found
    depth = start.count("/") + 1 if start else 0
    stack: list[tuple[str, str | None, int]] = [(start, None, depth)]
    while stack:
        path, owner, depth = stack.pop()
        entries = _list_entries(root, path, found)
        if has_skill_file(entries):
            owner = path
            records[owner] = []
        for entry in entries:
            inner = f"{path}/{entry.name}" if path else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and entry.name in SKIPPED_FOLDERS:
                continue
            environment = find_environment(entry.path) if is_folder else ""
            if is_folder and not environment:
                reason = find_skip_reason(entry.name, depth, limits)
                if reason:
                    found.refused[escape_non_utf8(inner)] = reason
                else:
                    stack.append((inner, owner, depth + 1))
            elif entry.is_symlink() and leads_to_folder(entry):
                _refuse_linked_folder(root, inner, found)
            elif owner is not None:
                own = path == owner and entry.name == SKILL_FILE
                file = environment or entry.path
                _add_file(file, own, owner, records, fresh, settled, found)
    for path, lines in records.items():
        digest = hashlib.blake2b("\n".join(lines).encode("utf-8", "surrogateescape"))
        found.signatures[path] = "" if path in fresh else digest.hexdigest()[:32]
    return found


def _is_entered(root: Path, path: str, limits: LimitSettings, found: SourceScan) -> bool:
    """Return whether a scan of the whole source enters a folder; adds the reason if it may not."""
    inner = ""
    for depth, name in enumerate(path.split("/") if path else ()):
        inner = f"{inner}/{name}" if inner else name
        folder = root / inner
        try:
            mode = folder.lstat().st_mode
        except OSError as error:
            # The walk finds out why a folder cannot be read.
            return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
        if stat.S_ISLNK(mode):
            _refuse_linked_folder(root, inner, found)
            return False
        if not stat.S_ISDIR(mode) or name in SKIPPED_FOLDERS or find_environment(str(folder)):
            return False
        if reason := find_skip_reason(name, depth, limits):
            found.refused[escape_non_utf8(inner)] = reason
            return False
    return True


def _list_entries(root: Path, path: str, found: SourceScan) -> list[os.DirEntry[str]]:
    """Return the entries of a folder by name; none if it is gone or cannot be read."""
    try:
        with os.scandir(root / path) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        found.refused[path] = f"folder cannot be read: {error.strerror}"
        found.unreadable.append(path)
        return []


def _add_file(
    path: str,
    own: bool,
    owner: str,
    records: dict[str, list[str]],
    fresh: set[str],
    settled: float,
    found: SourceScan,
) -> None:
    try:
        status = os.stat(path)  # noqa: PTH116 - hot loop
    except OSError:
        records[owner].append(f"{path}?")
        return
    records[owner].append(f"{path}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}")
    if status.st_mtime > settled:
        fresh.add(owner)
    if own:
        found.sizes[owner] = status.st_size


def _refuse_linked_folder(root: Path, path: str, found: SourceScan) -> None:
    target = Path(os.path.realpath(root / path))
    is_skill = os.path.exists(target / SKILL_FILE)  # noqa: PTH110 - False if it is not permitted
    if not target.is_relative_to(root) and is_skill:
        reason = f"a link leads out of the source, to {target}; sync the linked folder"
        found.refused[escape_non_utf8(path)] = escape_non_utf8(reason)


class DirectoryReader(SourceReader):
    """A `SourceReader` of a directory as it is at each call. root: absolute and without links."""

    def __init__(self, root: Path, limits: LimitSettings) -> None:
        self._root = root
        self._limits = limits

    @override
    def scan(self, start: str) -> SourceScan:
        return scan(self._root, start, self._limits)

    @override
    def read(self, path: str) -> SkillFolder:
        try:
            return read_skill_folder(self._root, path, self._limits)
        except PermanentError:
            if identify_folder(self._root) is None:
                raise SourceMissingError(describe_missing_root(str(self._root))) from None
            raise

    @override
    def read_file(self, path: str, name: str, max_bytes: int) -> bytes:
        for part in (path, name):
            check_relative_path(part, str(self._root))
        file = find_listed(self._root / path, name)
        return read_regular_file(self._root, file, max_bytes, "limits.folder_bytes")

    @override
    def find_owning_skill(self, path: str) -> str | None:
        return find_owner(path, self._is_skill)

    def _is_skill(self, folder: str) -> bool:
        is_file = os.path.isfile(self._root / folder / SKILL_FILE)  # noqa: PTH113 - never raises
        return is_file and _is_entered(self._root, folder, self._limits, SourceScan())
