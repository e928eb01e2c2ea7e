"""Directories as sources: scanned for skills, and read one skill's folder at a time.

Symbolic links are never followed out of the root.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from config.errors import PermanentError, TransientError, UsageError
from config.settings import LimitSettings
from skills.parsing import sibling_files
from skills.parsing.parse_skill import ParseLimits
from skills.parsing.sibling_files import VIRTUAL_ENVIRONMENT_FILE
from skills.record import SiblingFile
from tasks.sources.folder_rules import (
    SKIPPED_FOLDERS,
    check_relative_path,
    escape_non_utf8,
    find_owner,
    find_skip_reason,
    folder_too_large,
    hash_skill_folder,
)
from tasks.sources.protocol import (
    SKILL_FILE,
    SkillFolder,
    SkillGoneError,
    SourceReader,
    SourceScan,
)

_SETTLED_SECONDS = 0.1
"""Seconds, longer than the clock tick of common file systems, after which a later write changes a
file's time."""
_CHUNK = 1 << 20
_READ_ATTEMPTS = 3
_ESCAPED_BYTE = re.compile(rb"\\x([0-9a-f]{2})")


def to_parse_limits(limits: LimitSettings) -> ParseLimits:
    """Return the limits of the parser, from the settings."""
    return ParseLimits(max_bytes=limits.skill_bytes)


def resolve_root(root: Path) -> Path:
    """Return the root as an absolute path without links; raises UsageError if it cannot be
    listed."""
    try:
        resolved = _resolve(root.expanduser())
        if not resolved.is_dir():
            raise UsageError(f"{root} is a file; give the folder that holds the skills")
        str(resolved).encode()
        with os.scandir(resolved):
            return resolved
    except UnicodeEncodeError:
        shown = str(root).encode("utf-8", "backslashreplace").decode()
        raise UsageError(f"the path {shown} is not UTF-8 text; rename the folder") from None
    except FileNotFoundError:
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
        if any(entry.name == SKILL_FILE and not _is_folder(entry) for entry in entries):
            owner = path
            records[owner] = []
        for entry in entries:
            inner = f"{path}/{entry.name}" if path else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and entry.name in SKIPPED_FOLDERS:
                continue
            environment = _find_environment(entry.path) if is_folder else ""
            if is_folder and not environment:
                reason = find_skip_reason(entry.name, depth, limits)
                if reason:
                    found.refused[escape_non_utf8(inner)] = reason
                else:
                    stack.append((inner, owner, depth + 1))
            elif entry.is_symlink() and _is_folder(entry):
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
        if not stat.S_ISDIR(mode) or name in SKIPPED_FOLDERS or _find_environment(str(folder)):
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


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one; a loop of links is neither."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _resolve(path: Path) -> Path:
    """Return an existing path without links; raises OSError, unlike `Path.resolve`, for a loop."""
    return Path(os.path.realpath(path, strict=True))


def _find_environment(folder: str) -> str:
    """Return the file that makes a folder a virtual environment, "" without one."""
    path = os.path.join(folder, VIRTUAL_ENVIRONMENT_FILE)  # noqa: PTH118 - hot loop
    return path if os.path.exists(path) else ""  # noqa: PTH110 - hot loop


def _refuse_linked_folder(root: Path, path: str, found: SourceScan) -> None:
    target = Path(os.path.realpath(root / path))
    is_skill = os.path.exists(target / SKILL_FILE)  # noqa: PTH110 - False if it is not permitted
    if not target.is_relative_to(root) and is_skill:
        reason = f"a link out of the source ({target}); sync that folder itself"
        found.refused[escape_non_utf8(path)] = escape_non_utf8(reason)


def read_skill_folder(root: Path, path: str, limits: LimitSettings) -> SkillFolder:
    """Read and hash one skill's folder; raises as `SourceReader.read` does."""
    check_relative_path(path, str(root))
    folder = root / path
    if not Path(os.path.realpath(folder)).is_relative_to(root):
        raise PermanentError(f"{path}: a link out of the source; sync the linked folder itself")
    for _ in range(_READ_ATTEMPTS):
        content = _read_regular_file(
            root, folder / SKILL_FILE, limits.skill_bytes, "limits.skill_bytes"
        )
        files = tuple(sorted(_list_siblings(root, folder, limits), key=lambda file: file.path))
        content_hash = hash_skill_folder(hashlib.sha256(content).digest(), files)
        try:
            texts = sibling_files.read_selected_files(
                files, lambda file: _read_again(root, folder, file)
            )
        except _ChangedError:
            continue
        return SkillFolder(content, files, content_hash, texts)
    # The scanner's result is stored for the hash, so it must have read the hashed bytes.
    raise PermanentError(f"{path}: its files change while they are read; sync it again afterwards")


class _ChangedError(Exception):
    """A file has changed since it was hashed."""


def _read_again(root: Path, folder: Path, file: SiblingFile) -> bytes:
    """Return the hashed bytes of a file; raises _ChangedError if the file has changed since."""
    path = _find_listed(folder, file.path)
    try:
        if not _resolve(path).is_relative_to(root):
            raise _ChangedError
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise _ChangedError
            content = stream.read(file.size + 1)
    except (OSError, ValueError):
        raise _ChangedError from None
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise _ChangedError
    return content


def _find_listed(folder: Path, listed: str) -> Path:
    """Return the file listed under this name, which `escape_non_utf8` may have produced."""
    path = folder / listed
    if path.exists():
        return path
    raw = _ESCAPED_BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), os.fsencode(listed))
    return folder / os.fsdecode(raw)


def _read_regular_file(root: Path, file: Path, max_bytes: int, setting: str) -> bytes:
    """Return the bytes of a file inside the root; raises as `SourceReader.read_file` does.

    setting: name of the setting of the limit.
    """
    try:
        if not _resolve(file).is_relative_to(root):
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
        if status.st_size > max_bytes:
            raise PermanentError(
                f"{file}: {status.st_size} bytes; the limit is {max_bytes} ({setting})"
            )
        try:
            return stream.read(max_bytes + 1)
        except OSError as error:
            raise _to_skillbus_error(file, error) from error


def _to_skillbus_error(file: Path, error: OSError) -> PermanentError | TransientError:
    transient = {"EIO", "EAGAIN", "EMFILE", "ENFILE", "ESTALE", "EINTR", "ENOMEM"}
    name = errno.errorcode.get(error.errno or 0, "")
    kind = TransientError if name in transient else PermanentError
    return kind(f"{file}: cannot be read: {error.strerror}")


def _list_siblings(root: Path, folder: Path, limits: LimitSettings) -> Iterator[SiblingFile]:
    count, total = 0, 0
    stack = [folder]
    while stack:
        current = stack.pop()
        try:
            entries = list(os.scandir(current))
        except OSError:
            # The scan reports it as unreadable; the rest of the folder still counts.
            continue
        if current != folder and any(entry.name == SKILL_FILE for entry in entries):
            continue
        for entry in entries:
            path = entry.path
            if entry.is_dir(follow_symlinks=False):
                if entry.name in SKIPPED_FOLDERS:
                    continue
                path = _find_environment(entry.path)
                if not path:
                    stack.append(Path(entry.path))
                    continue
            elif current == folder and entry.name == SKILL_FILE:
                continue
            file = _read_sibling(root, folder, Path(path))
            if file is None:
                continue
            count, total = count + 1, total + file.size
            if count > limits.folder_files or total > limits.folder_bytes:
                raise folder_too_large(str(folder), limits)
            yield file


def _read_sibling(root: Path, folder: Path, file: Path) -> SiblingFile | None:
    """Return a regular file inside the root, None for links out of it, sockets and vanished
    files."""
    try:
        if not _resolve(file).is_relative_to(root):
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
    name = escape_non_utf8(file.relative_to(folder).as_posix())
    return SiblingFile(name, status.st_size, digest.hexdigest())


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
                raise TransientError(
                    f"{self._root} is missing or cannot be reached; its skills stay as they are"
                ) from None
            raise

    @override
    def read_file(self, path: str, name: str, max_bytes: int) -> bytes:
        for part in (path, name):
            check_relative_path(part, str(self._root))
        file = _find_listed(self._root / path, name)
        return _read_regular_file(self._root, file, max_bytes, "limits.folder_bytes")

    @override
    def find_owning_skill(self, path: str) -> str | None:
        return find_owner(path, self._is_skill)

    def _is_skill(self, folder: str) -> bool:
        is_file = os.path.isfile(self._root / folder / SKILL_FILE)  # noqa: PTH113 - never raises
        return is_file and _is_entered(self._root, folder, self._limits, SourceScan())

    @override
    def check_relative_path(self, path: str) -> None:
        check_relative_path(path, str(self._root))
