"""Directories of skills: what is there, what changed, and what one skill's folder holds.

A folder with a SKILL.md is a skill; a SKILL.md deeper inside it is a skill of its own, whose files
do not count for the outer one. Links are never followed out of the root.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from config.errors import PermanentError, TransientError, UsageError
from config.settings import LimitSettings
from skills.parsing import sibling_files
from skills.parsing.parse_skill import ParseLimits
from skills.record import SiblingFile

SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv"})
SKILL_FILE = "SKILL.md"
_SETTLED_SECONDS = 0.1
"""Longer than the clock tick of common file systems: a later write shows in the time."""
_CHUNK = 1 << 20


class SkillGoneError(PermanentError):
    """The folder or its SKILL.md is no longer there."""


@dataclass(slots=True)
class SourceScan:
    """Skill path -> signature of its files' names, sizes and times.

    A signature is empty while a file is so fresh that another write could leave its time as it
    is. `sizes` are bytes of each SKILL.md. `refused` are paths with the reason why they were not
    read; what lies below an `unreadable` folder is unknown, not gone.
    """

    signatures: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def covers(self, path: str) -> bool:
        """Whether absence of `path` from the scan means that it is gone."""
        return not any(path == top or path.startswith(top + "/") for top in self.unreadable)


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """One skill's folder as read: SKILL.md's bytes, the other files, and the hash over all.

    beside: path -> bytes of those of the other files that are read as well
    (`skills.parsing.sibling_files`).
    """

    content: bytes
    files: tuple[SiblingFile, ...]
    content_hash: str
    sibling_files: Mapping[str, bytes] = field(default_factory=dict)


def to_parse_limits(limits: LimitSettings) -> ParseLimits:
    """The parser's bounds, from the settings."""
    return ParseLimits(max_bytes=limits.skill_bytes)


def resolve_root(root: Path) -> Path:
    """The root as an absolute path without links; raises UsageError that says what is wrong."""
    try:
        resolved = root.expanduser().resolve(strict=True)
        if not resolved.is_dir():
            raise UsageError(f"{root} is a file; give the folder that holds the skills")
        with os.scandir(resolved):
            return resolved
    except FileNotFoundError:
        raise UsageError(f"{root} does not exist; give the folder that holds the skills") from None
    except OSError as error:
        raise UsageError(f"{root} cannot be read: {error.strerror}") from error


def scan(root: Path, start: str, limits: LimitSettings) -> SourceScan:
    """Every skill at or below `start` (a path in the root, "" for all of it)."""
    found = SourceScan()
    records: dict[str, list[str]] = {}
    fresh: set[str] = set()
    settled = time.time() - _SETTLED_SECONDS
    stack: list[tuple[str, str | None, int]] = [(start, None, start.count("/"))]
    while stack:
        path, owner, depth = stack.pop()
        try:
            with os.scandir(root / path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found.refused[path] = f"folder cannot be read: {error.strerror}"
            found.unreadable.append(path)
            continue
        if any(entry.name == SKILL_FILE and not entry.is_dir() for entry in entries):
            owner = path
            records[owner] = []
        for entry in entries:
            inner = f"{path}/{entry.name}" if path else entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name in SKIPPED_FOLDERS or _is_virtual_environment(entry.path):
                    continue
                reason = _find_skip_reason(entry.name, depth, limits)
                if reason:
                    found.refused[_escape_non_utf8(inner)] = reason
                else:
                    stack.append((inner, owner, depth + 1))
            elif entry.is_symlink() and entry.is_dir():
                _refuse_linked_folder(root, _escape_non_utf8(inner), found)
            elif owner is not None:
                _add_file(entry, path == owner, owner, records, fresh, settled, found)
    for path, lines in records.items():
        digest = hashlib.blake2b("\n".join(lines).encode("utf-8", "surrogateescape"))
        found.signatures[path] = "" if path in fresh else digest.hexdigest()[:32]
    return found


def _find_skip_reason(name: str, depth: int, limits: LimitSettings) -> str:
    """Why a folder is not entered, "" when it is."""
    if depth >= limits.depth:
        return f"deeper than {limits.depth} folders (limits.depth)"
    if _escape_non_utf8(name) != name:
        return "the folder's name is not UTF-8; rename it"
    return ""


def _escape_non_utf8(path: str) -> str:
    """A path whose bytes that are not UTF-8 are written as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _add_file(
    entry: os.DirEntry[str],
    own: bool,
    owner: str,
    records: dict[str, list[str]],
    fresh: set[str],
    settled: float,
    found: SourceScan,
) -> None:
    try:
        status = entry.stat()
    except OSError:
        records[owner].append(f"{entry.path}?")
        return
    records[owner].append(f"{entry.path}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}")
    if status.st_mtime > settled:
        fresh.add(owner)
    if own and entry.name == SKILL_FILE:
        found.sizes[owner] = status.st_size


def _is_virtual_environment(path: str) -> bool:
    return os.path.exists(os.path.join(path, "pyvenv.cfg"))  # noqa: PTH110, PTH118 - hot loop


def _refuse_linked_folder(root: Path, path: str, found: SourceScan) -> None:
    target = (root / path).resolve()
    if not target.is_relative_to(root) and (target / SKILL_FILE).exists():
        found.refused[path] = f"a link out of the source ({target}); sync that folder itself"


def find_owning_skill(root: Path, path: str) -> str | None:
    """The nearest folder at or above `path` that is a skill, None without one."""
    current = PurePosixPath(path)
    for folder in (current, *current.parents):
        name = "" if str(folder) == "." else str(folder)
        if (root / name / SKILL_FILE).is_file():
            return name
    return None


def check_relative_path(root: Path, path: str) -> None:
    """Raise UsageError unless `path` is a clean relative path that stays inside the root."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise UsageError(f"path {path!r} leads out of {root}; paths are relative to the source")


def read_skill_folder(root: Path, path: str, limits: LimitSettings) -> SkillFolder:
    """Read and hash one skill's folder.

    content_hash covers SKILL.md and the sorted paths, sizes and hashes of the other files.
    Raises SkillGoneError when there is no skill any more, PermanentError for one that may not or
    cannot be read, TransientError when reading failed for a passing reason.
    """
    check_relative_path(root, path)
    folder = root / path
    if not folder.resolve().is_relative_to(root):
        raise PermanentError(f"{path}: a link out of the source; sync the linked folder itself")
    content = _read_skill_file(root, folder / SKILL_FILE, limits)
    files = tuple(sorted(_siblings(root, folder, limits), key=lambda file: file.path))
    digest = hashlib.sha256(hashlib.sha256(content).digest())
    for file in files:
        digest.update(f"{file.path}\0{file.size}\0{file.sha256}\n".encode("utf-8", "replace"))
    texts = sibling_files.read_selected_files(files, lambda file: _read_again(root, folder, file))
    return SkillFolder(content, files, digest.hexdigest(), texts)


def _read_again(root: Path, folder: Path, file: SiblingFile) -> bytes | None:
    """The bytes that were hashed; None where they are no longer there: that change comes too."""
    path = folder / file.path
    try:
        if not path.resolve(strict=True).is_relative_to(root):
            return None
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return None
            content = stream.read(file.size + 1)
    except (OSError, ValueError):
        return None
    return content if hashlib.sha256(content).hexdigest() == file.sha256 else None


def _read_skill_file(root: Path, file: Path, limits: LimitSettings) -> bytes:
    try:
        if not file.resolve(strict=True).is_relative_to(root):
            raise PermanentError(f"{file}: a link out of the source; copy the file instead")
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise SkillGoneError(f"{file} is gone") from None
    except PermissionError:
        raise PermanentError(f"{file}: permission denied; make it readable") from None
    except OSError as error:
        raise _to_skillbus_error(file, error) from error
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PermanentError(f"{file}: not a regular file")
        if status.st_size > limits.skill_bytes:
            raise PermanentError(
                f"{file}: {status.st_size} bytes; the limit is {limits.skill_bytes} "
                "(limits.skill_bytes)"
            )
        try:
            return stream.read(limits.skill_bytes + 1)
        except OSError as error:
            raise _to_skillbus_error(file, error) from error


def _to_skillbus_error(file: Path, error: OSError) -> PermanentError | TransientError:
    passing = {"EIO", "EAGAIN", "EMFILE", "ENFILE", "ESTALE", "EINTR", "ENOMEM"}
    name = errno.errorcode.get(error.errno or 0, "")
    kind = TransientError if name in passing else PermanentError
    return kind(f"{file}: cannot be read: {error.strerror}")


def _siblings(root: Path, folder: Path, limits: LimitSettings) -> Iterator[SiblingFile]:
    count, total = 0, 0
    stack = [folder]
    while stack:
        current = stack.pop()
        try:
            entries = list(os.scandir(current))
        except OSError:
            # Listed as unreadable by the scan; what can be read of the folder still counts.
            continue
        if current != folder and any(entry.name == SKILL_FILE for entry in entries):
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_FOLDERS and not _is_virtual_environment(entry.path):
                    stack.append(Path(entry.path))
                continue
            if current == folder and entry.name == SKILL_FILE:
                continue
            file = _sibling(root, folder, Path(entry.path))
            if file is None:
                continue
            count, total = count + 1, total + file.size
            if count > limits.folder_files or total > limits.folder_bytes:
                raise PermanentError(
                    f"{folder}: more than {limits.folder_files} files or {limits.folder_bytes} "
                    "bytes beside SKILL.md (limits.folder_files, limits.folder_bytes)"
                )
            yield file


def _sibling(root: Path, folder: Path, file: Path) -> SiblingFile | None:
    """A regular file inside the root; links out, sockets and vanished files are left out."""
    try:
        if not file.resolve(strict=True).is_relative_to(root):
            return None
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            digest = hashlib.sha256()
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return None
    name = _escape_non_utf8(file.relative_to(folder).as_posix())
    return SiblingFile(name, status.st_size, digest.hexdigest())
