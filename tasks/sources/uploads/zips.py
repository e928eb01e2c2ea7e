"""Members of zip archives."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from config.inbound_settings import UploadSettings
from tasks.sources.uploads.archive import ArchiveMember
from tasks.sources.uploads.limits import (
    ArchiveError,
    UploadMeter,
    UploadTooLargeError,
    escape_name,
    iter_chunks,
)

_ENTRY_BYTES = 400
"""Of the table of contents for one member, with a long name and extra fields."""
_LEAST_TABLE = 1 << 18
_LOCAL_HEADER = 30
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UTF8 = 0x800
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    OverflowError,
)


class _BoundedFile(io.BufferedIOBase):
    """A file whose table of contents is not read where it is too long.

    zipfile takes the whole of it in at once, and every member of it into memory.
    """

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self._most = most

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move on."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Where it stands."""
        return self._file.tell()

    def read(self, size: int | None = -1) -> bytes:
        """Read; raises TooLargeError for more than the bound at once."""
        if size is not None and size > self._most:
            raise UploadTooLargeError("too many members for uploads.files")
        return self._file.read(-1 if size is None else size)


def iter_zip_members(
    file: BinaryIO, bounds: UploadSettings, meter: UploadMeter
) -> Iterator[ArchiveMember]:
    """Members of a zip in the order of its table, each to be read before the next is asked for.

    Raises ArchiveError, TooLargeError.
    """
    size = file.seek(0, io.SEEK_END)
    table = max(_LEAST_TABLE, bounds.files * _ENTRY_BYTES)
    with _as_archive_errors(), zipfile.ZipFile(_BoundedFile(file, table)) as archive:
        entries = archive.infolist()
        for entry in entries:
            meter.count_member(entry.orig_filename)
        _check_places(entries, size)
        for entry in entries:
            yield _member(archive, entry, meter)


@contextmanager
def _as_archive_errors() -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise ArchiveError(f"not a whole zip archive: {error}") from error


def _check_places(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Members that lie over one another unpack the same bytes many times."""
    end = 0
    for entry in sorted(entries, key=lambda one: one.header_offset):
        if entry.header_offset < end:
            raise ArchiveError(f"{escape_name(entry.orig_filename)}: lies over another member")
        end = entry.header_offset + _LOCAL_HEADER + entry.compress_size
    if end > size:
        raise ArchiveError("the archive is truncated")


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, meter: UploadMeter) -> ArchiveMember:
    name = _name(entry)
    if entry.flag_bits & _ENCRYPTED:
        raise ArchiveError(f"{escape_name(name)}: encrypted; send it without a password")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise ArchiveError(f"{escape_name(name)}: a symbolic link; only plain files are taken")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ArchiveError(f"{escape_name(name)}: of a special kind; only plain files are taken")
    if name.endswith("/") or kind == stat.S_IFDIR:
        if entry.file_size:
            raise ArchiveError(f"{escape_name(name)}: a folder with content")
        return ArchiveMember(name, None)
    if entry.compress_type not in _METHODS:
        raise ArchiveError(f"{escape_name(name)}: compressed in an unusual way; use deflate")
    return ArchiveMember(name, _content(archive, entry, name, meter))


def _name(entry: zipfile.ZipInfo) -> str:
    """The name as it stands there; without the mark of UTF-8 it is UTF-8 all the same, or wrong."""
    if entry.flag_bits & _UTF8:
        return entry.orig_filename
    # A surrogate stands for a byte that is none of UTF-8, and is refused with the name.
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
        raise ArchiveError(f"{escape_name(name)}: is not of the size that the archive says")
