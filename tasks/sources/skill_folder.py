"""Reads and hashes one skill's folder of a directory, without leaving the directory's root."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from config.errors import PermanentError, TransientError
from config.settings import LimitSettings
from skills.parsing import sibling_files
from skills.record import SiblingFile
from tasks.sources.folder_rules import (
    SKIPPED_FOLDERS,
    check_relative_path,
    check_skill_file,
    escape_non_utf8,
    find_environment,
    folder_too_large,
    has_skill_file,
    hash_skill_folder,
    sort_siblings,
)
from tasks.sources.protocol import SKILL_FILE, SkillFolder, SkillGoneError

_CHUNK = 1 << 20
_READ_ATTEMPTS = 3
_ESCAPED_BYTE = re.compile(rb"\\x([0-9a-f]{2})")


def resolve_path(path: Path) -> Path:
    """Return an existing path without links; raises OSError, unlike `Path.resolve`, for a loop."""
    return Path(os.path.realpath(path, strict=True))


def read_skill_folder(root: Path, path: str, limits: LimitSettings) -> SkillFolder:
    """Read and hash one skill's folder; raises as `SourceReader.read` does."""
    check_relative_path(path, str(root))
    folder = root / path
    if not Path(os.path.realpath(folder)).is_relative_to(root):
        raise PermanentError(f"{path}: a link leads out of the source; sync the linked folder")
    for _ in range(_READ_ATTEMPTS):
        content = read_regular_file(
            root, folder / SKILL_FILE, limits.skill_bytes, "limits.skill_bytes"
        )
        check_skill_file(str(folder / SKILL_FILE), content)
        files = sort_siblings(path, _list_siblings(root, folder, limits))
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
    path = find_listed(folder, file.path)
    try:
        if not resolve_path(path).is_relative_to(root):
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


def find_listed(folder: Path, listed: str) -> Path:
    """Return the file listed under this name, which `escape_non_utf8` may have produced."""
    path = folder / listed
    if os.path.exists(path):  # noqa: PTH110 - False for an error, too
        return path
    raw = _ESCAPED_BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), os.fsencode(listed))
    return folder / os.fsdecode(raw)


def read_regular_file(root: Path, file: Path, max_bytes: int, setting: str) -> bytes:
    """Return the bytes of a file inside the root; raises as `SourceReader.read_file` does.

    setting: name of the setting of the limit.
    """
    try:
        if not resolve_path(file).is_relative_to(root):
            raise PermanentError(f"{file}: a link leads out of the source; copy the file instead")
        if file.is_dir():  # which `fdopen` refuses
            raise PermanentError(f"{file}: not a regular file")
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
        if current != folder and has_skill_file(entries):
            continue
        for entry in entries:
            path = entry.path
            if entry.is_dir(follow_symlinks=False):
                if entry.name in SKIPPED_FOLDERS:
                    continue
                path = find_environment(entry.path)
                if not path:
                    stack.append(Path(entry.path))
                    continue
            elif current == folder and entry.name == SKILL_FILE:
                continue
            file = _read_sibling(root, folder, Path(path), limits.folder_bytes - total)
            if file is None:
                continue
            count, total = count + 1, total + file.size
            if count > limits.folder_files or total > limits.folder_bytes:
                raise folder_too_large(str(folder), limits)
            yield file


def _read_sibling(root: Path, folder: Path, file: Path, max_bytes: int) -> SiblingFile | None:
    """Return a regular file inside the root, None for links out of it, sockets and vanished
    files.

    A file of more than `max_bytes`, which the caller refuses, is not hashed: it may be of any size.
    """
    try:
        if not resolve_path(file).is_relative_to(root):
            return None
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            digest = hashlib.sha256()
            while status.st_size <= max_bytes and (chunk := stream.read(_CHUNK)):
                digest.update(chunk)
    except OSError:
        return None
    name = escape_non_utf8(file.relative_to(folder).as_posix())
    return SiblingFile(name, status.st_size, digest.hexdigest())
