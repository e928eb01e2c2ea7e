"""Members of tar archives, compressed or not, read once from front to back."""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol

from tasks.sources.uploads.archive import ArchiveMember
from tasks.sources.uploads.limits import CHUNK, ArchiveError, UploadMeter, escape_name, iter_chunks

_LARGEST_HEADER = 1 << 14
"""Bytes for one member. tarfile may look at every pair of places in a header (CVE-2024-6232), and
keeps the whole map of a sparse file."""
_LZMA_BYTES = 128 << 20
"""Memory for a dictionary: `xz -9` asks for 65 MB."""
_ANYTHING = "the archive"
_KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


class _Gzip:
    """zlib's decompressor with the ways of those of bz2 and lzma."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = CHUNK) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    "gz": _Gzip,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_BYTES),
}


class _TarStream(io.RawIOBase):
    """The tar itself: counted while it comes out, read forward only, never much at a time."""

    def __init__(self, file: BinaryIO, compression: str, meter: UploadMeter) -> None:
        self._file = file
        self._make = _DECOMPRESSORS.get(compression)
        self._decompressor: _Decompressor | None = None
        self._meter = meter
        self._rest = b""
        self._ready = b""
        self._position = 0
        self._ended = False
        self._room = _LARGEST_HEADER
        self.last = b""

    def begin(self, room: int) -> None:
        """Let at most `room` bytes be read until this is called again."""
        self._room = room

    def tell(self) -> int:
        """Bytes read so far."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Read on to an offset."""
        if whence != io.SEEK_SET or offset < self._position:
            raise ArchiveError("the archive's sizes contradict one another")
        while self._position < offset:
            if not self._take(min(CHUNK, offset - self._position)):
                break
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Exactly `size` bytes, fewer only at the end."""
        if not 0 <= size <= self._room:
            raise ArchiveError("a header of the archive is larger than any name needs")
        self._room -= size
        return self._take(size)

    def _take(self, size: int) -> bytes:
        parts, missing = [], size
        while missing:
            if not self._ready and not self._fill():
                break
            part, self._ready = self._ready[:missing], self._ready[missing:]
            parts.append(part)
            missing -= len(part)
        self.last = b"".join(parts)
        self._position += len(self.last)
        return self.last

    def _fill(self) -> bool:
        """Unpack a little more; False at the end."""
        while not self._ready and not self._ended:
            self._ready = self._next()
            self._meter.count_bytes(len(self._ready), _ANYTHING)
        return bool(self._ready)

    def _next(self) -> bytes:
        if self._make is None:
            chunk = self._file.read(CHUNK)
            self._ended = not chunk
            return chunk
        if self._decompressor is None:
            return self._begin(self._make)
        asked = self._decompressor.needs_input
        data = self._file.read(CHUNK) if asked else b""
        out = self._decompressor.decompress(data, CHUNK)
        if self._decompressor.eof:
            self._rest, self._decompressor = self._decompressor.unused_data, None
        elif asked and not data and not out:
            raise ArchiveError("the archive is truncated")
        return out

    def _begin(self, make: Callable[[], _Decompressor]) -> bytes:
        """Compressed streams may follow one another, with zeros between."""
        self._rest = self._rest.lstrip(b"\0") or self._file.read(CHUNK)
        if not self._rest:
            self._ended = True
        elif not self._rest.startswith(b"\0"):
            self._decompressor, rest, self._rest = make(), self._rest, b""
            out = self._decompressor.decompress(rest, CHUNK)
            if self._decompressor.eof:
                self._rest, self._decompressor = self._decompressor.unused_data, None
            return out
        return b""


_BROKEN = (tarfile.TarError, zlib.error, lzma.LZMAError, OSError, EOFError)
_WRONG = (ValueError, LookupError, OverflowError, RuntimeError, struct.error)
"""What tarfile raises over headers that nobody would write; too many nested ones recurse."""


@contextmanager
def _as_archive_errors() -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise ArchiveError(f"not a whole tar archive: {error}") from error
    except _WRONG as error:
        raise ArchiveError(f"a header of the archive is wrong: {error}") from error


def iter_tar_members(
    file: BinaryIO, compression: str, meter: UploadMeter
) -> Iterator[ArchiveMember]:
    """Members of a tar in order, each to be read before the next is asked for.

    compression: "gz", "bz2", "xz" or "". Raises ArchiveError, TooLargeError.
    """
    unpacked = _TarStream(file, compression, meter)
    with (
        _as_archive_errors(),
        tarfile.open(
            fileobj=unpacked, mode="r:", encoding="utf-8", errors="surrogateescape"
        ) as archive,
    ):
        while (found := archive.next()) is not None:
            unpacked.begin(found.size)
            yield _member(archive, found, meter)
            unpacked.begin(_LARGEST_HEADER)
        unpacked.begin(sys.maxsize)
        _check_end(unpacked)


def _member(archive: tarfile.TarFile, found: tarfile.TarInfo, meter: UploadMeter) -> ArchiveMember:
    meter.count_member(found.name)
    if found.isdir():
        return ArchiveMember(found.name, None)
    if found.sparse is not None:
        raise ArchiveError(f"{escape_name(found.name)}: a sparse file; only plain files are taken")
    if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        kind = _KINDS.get(found.type, "of a special kind")
        raise ArchiveError(f"{escape_name(found.name)}: {kind}; only plain files are taken")
    if found.size < 0:
        raise ArchiveError(f"{escape_name(found.name)}: its size is negative")
    return ArchiveMember(found.name, _content(archive, found))


def _content(archive: tarfile.TarFile, found: tarfile.TarInfo) -> Iterator[bytes]:
    total = 0
    with _as_archive_errors():
        stream = archive.extractfile(found)
        if stream is None:
            raise ArchiveError(f"{escape_name(found.name)}: holds nothing that can be read")
        for chunk in iter_chunks(stream):
            total += len(chunk)
            yield chunk
    if total != found.size:
        raise ArchiveError(f"{escape_name(found.name)}: the archive is truncated")


def _check_end(unpacked: _TarStream) -> None:
    """tarfile ends quietly at a damaged header: the mark of the end must be there."""
    if len(unpacked.last) != tarfile.BLOCKSIZE or unpacked.last.strip(b"\0"):
        raise ArchiveError("the archive is truncated or damaged: its end is missing")
    while rest := unpacked.read(CHUNK):
        if rest.strip(b"\0"):
            raise ArchiveError("the archive holds something behind its end")
