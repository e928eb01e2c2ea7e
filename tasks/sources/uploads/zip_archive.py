"""Reader of zip archives, which yields their members."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from config.inbound_settings import UploadSettings
from tasks.sources.uploads.archive import ZIP_ERRORS, ArchiveMember
from tasks.sources.uploads.limits import (
    ArchiveError,
    UploadMeter,
    UploadTooLargeError,
    escape_name,
    iter_chunks,
)

_TABLE_BYTES_PER_MEMBER = 400
"""Bytes of the table of contents for one member, with a long name and extra fields."""
_MIN_TABLE_BYTES = 1 << 18
_LOCAL_HEADER_BYTES = 30
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UTF8 = 0x800


class _BoundedFile(io.BufferedIOBase):
    """A file that refuses to read a table of contents above a size.

    zipfile reads the whole table at once, and keeps every member of it in memory.
    """

    def __init__(self, file: BinaryIO, max_read_bytes: int) -> None:
        self._file = file
        self._max_read_bytes = max_read_bytes

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the current position."""
        return self._file.tell()

    def read(self, size: int | None = -1) -> bytes:
        """Read; raises UploadTooLargeError for more than the limit at once."""
        if size is not None and size > self._max_read_bytes:
            raise UploadTooLargeError("too many members for uploads.files")
        return self._file.read(-1 if size is None else size)


def iter_zip_members(
    file: BinaryIO, bounds: UploadSettings, meter: UploadMeter
) -> Iterator[ArchiveMember]:
    """Yield members of a zip in the order of its table; each must be read before the next one.

    Raises ArchiveError, UploadTooLargeError.
    """
    size = file.seek(0, io.SEEK_END)
    table = max(_MIN_TABLE_BYTES, bounds.files * _TABLE_BYTES_PER_MEMBER)
    with _as_archive_errors(), zipfile.ZipFile(_BoundedFile(file, table)) as archive:
        entries = archive.infolist()
        for entry in entries:
            meter.count_member(entry.orig_filename)
        _check_overlaps(entries, size)
        for entry in entries:
            yield _member(archive, entry, meter)


@contextmanager
def _as_archive_errors() -> Iterator[None]:
    try:
        yield
    except (*ZIP_ERRORS, OSError) as error:
        raise ArchiveError(f"not a complete zip archive: {error}") from error


def _check_overlaps(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Raise ArchiveError for overlapping members, which unpack the same bytes many times."""
    end = 0
    for entry in sorted(entries, key=lambda one: one.header_offset):
        if entry.header_offset < end:
            raise ArchiveError(f"{escape_name(entry.orig_filename)}: overlaps another member")
        end = entry.header_offset + _LOCAL_HEADER_BYTES + entry.compress_size
    if end > size:
        raise ArchiveError("the archive is truncated")


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, meter: UploadMeter) -> ArchiveMember:
    name = _name(entry)
    if entry.flag_bits & _ENCRYPTED:
        raise ArchiveError(f"{escape_name(name)}: encrypted; send it without a password")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise ArchiveError(f"{escape_name(name)}: a symbolic link; send only regular files")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ArchiveError(f"{escape_name(name)}: a special file; send only regular files")
    if name.endswith("/") or kind == stat.S_IFDIR:
        if entry.file_size:
            raise ArchiveError(f"{escape_name(name)}: a folder with content")
        return ArchiveMember(name, None)
    if entry.compress_type not in _METHODS:
        raise ArchiveError(f"{escape_name(name)}: compressed by an unsupported method; use deflate")
    return ArchiveMember(name, _content(archive, entry, name, meter))


def _name(entry: zipfile.ZipInfo) -> str:
    """Return the name of a member, read as UTF-8 even if its flag for UTF-8 is not set."""
    if entry.flag_bits & _UTF8:
        return entry.orig_filename
    # Surrogates replace bytes that are not UTF-8; `clean_path` refuses them.
    return entry.orig_filename.encode("cp437").decode("utf-8", "surrogateescape")


def _content(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str, meter: UploadMeter
) -> Iterator[bytes]:
    total = 0
    with _as_archive_errors(), archive.open(entry) as stream:
        for chunk in iter_chunks(stream):
            total += len(chunk)
            meter.count_bytes(len(chunk), name)
            yield chunk
    if total != entry.file_size:
        raise ArchiveError(f"{escape_name(name)}: does not have the size given in the archive")
