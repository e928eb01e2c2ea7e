"""Reader of tar archives, compressed or not, which yields their members in one pass."""

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

_MAX_HEADER_BYTES = 1 << 14
"""Maximum bytes of headers per member. tarfile takes quadratic time for a header (CVE-2024-6232),
and keeps the whole map of a sparse file."""
_MAX_GLOBAL_HEADERS = 100
"""Maximum number of keys in global headers, which hold for all later members: git writes one."""
_MAX_LZMA_BYTES = 128 << 20
"""Memory limit for the dictionary: `xz -9` needs 65 MB."""
_WHOLE_ARCHIVE = "the archive"
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
    """zlib's decompressor with the interface of the decompressors of bz2 and lzma."""

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
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_LZMA_BYTES),
}


class _TarStream(io.RawIOBase):
    """The uncompressed tar, read forward only, with its bytes counted and its headers limited."""

    def __init__(self, file: BinaryIO, compression: str, meter: UploadMeter) -> None:
        self._file = file
        self._make = _DECOMPRESSORS.get(compression)
        self._decompressor: _Decompressor | None = None
        self._meter = meter
        self._rest = b""
        self._ready = b""
        self._position = 0
        self._ended = False
        self._readable = _MAX_HEADER_BYTES
        self.last = b""

    def limit_reads(self, max_bytes: int) -> None:
        """Allow `read` to return at most `max_bytes` until this is called again."""
        self._readable = max_bytes

    def tell(self) -> int:
        """Return the number of bytes read so far."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Skip forward to an offset."""
        if whence != io.SEEK_SET or offset < self._position:
            raise ArchiveError("the archive's sizes contradict one another")
        while self._position < offset:
            if not self._take(min(CHUNK, offset - self._position)):
                break
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return exactly `size` bytes, fewer only at the end; raises ArchiveError beyond
        `limit_reads`."""
        if not 0 <= size <= self._readable:
            raise ArchiveError("a header of the archive is larger than any name needs")
        self._readable -= size
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
        """Decompress the next chunk; return False at the end."""
        while not self._ready and not self._ended:
            self._ready = self._next()
            self._meter.count_bytes(len(self._ready), _WHOLE_ARCHIVE)
        return bool(self._ready)

    def _next(self) -> bytes:
        if self._make is None:
            chunk = self._file.read(CHUNK)
            self._ended = not chunk
            return chunk
        if self._decompressor is None:
            return self._start_stream(self._make)
        needs_input = self._decompressor.needs_input
        data = self._file.read(CHUNK) if needs_input else b""
        out = self._decompressor.decompress(data, CHUNK)
        if self._decompressor.eof:
            self._rest, self._decompressor = self._decompressor.unused_data, None
        elif needs_input and not data and not out:
            raise ArchiveError("the archive is truncated")
        return out

    def _start_stream(self, make: Callable[[], _Decompressor]) -> bytes:
        """Decompress the next of several concatenated streams, which zeros may separate."""
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


_FORMAT_ERRORS = (tarfile.TarError, zlib.error, lzma.LZMAError, OSError, EOFError)
_HEADER_ERRORS = (ValueError, LookupError, OverflowError, RuntimeError, struct.error)
"""Errors of tarfile for malicious headers; RuntimeError for a recursion of nested headers."""


@contextmanager
def _as_archive_errors() -> Iterator[None]:
    try:
        yield
    except _FORMAT_ERRORS as error:
        raise ArchiveError(f"not a complete tar archive: {error}") from error
    except _HEADER_ERRORS as error:
        raise ArchiveError(f"a header of the archive is wrong: {error}") from error


def iter_tar_members(
    file: BinaryIO, compression: str, meter: UploadMeter
) -> Iterator[ArchiveMember]:
    """Yield members of a tar in order; each must be read before the next one.

    compression: "gz", "bz2", "xz" or "". Raises ArchiveError, UploadTooLargeError.
    """
    unpacked = _TarStream(file, compression, meter)
    with (
        _as_archive_errors(),
        tarfile.open(
            fileobj=unpacked, mode="r:", encoding="utf-8", errors="surrogateescape"
        ) as archive,
    ):
        while (found := archive.next()) is not None:
            if len(archive.pax_headers) > _MAX_GLOBAL_HEADERS:
                raise ArchiveError("more global headers than an archive needs")
            # Each holds its extended headers.
            archive.members.clear()  # type: ignore[attr-defined]  # typeshed leaves it out
            unpacked.limit_reads(found.size)
            yield _member(archive, found, meter)
            unpacked.limit_reads(_MAX_HEADER_BYTES)
        unpacked.limit_reads(sys.maxsize)
        _check_end(unpacked)


def _member(archive: tarfile.TarFile, found: tarfile.TarInfo, meter: UploadMeter) -> ArchiveMember:
    meter.count_member(found.name)
    if found.isdir():
        return ArchiveMember(found.name, None)
    if found.sparse is not None:
        raise ArchiveError(f"{escape_name(found.name)}: a sparse file; send only regular files")
    if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        kind = _KINDS.get(found.type, "of a special kind")
        raise ArchiveError(f"{escape_name(found.name)}: {kind}; send only regular files")
    if found.size < 0:
        raise ArchiveError(f"{escape_name(found.name)}: its size is negative")
    return ArchiveMember(found.name, _content(archive, found))


def _content(archive: tarfile.TarFile, found: tarfile.TarInfo) -> Iterator[bytes]:
    total = 0
    with _as_archive_errors():
        stream = archive.extractfile(found)
        if stream is None:
            raise ArchiveError(f"{escape_name(found.name)}: has no content")
        for chunk in iter_chunks(stream):
            total += len(chunk)
            yield chunk
    if total != found.size:
        raise ArchiveError(f"{escape_name(found.name)}: the archive is truncated")


def _check_end(unpacked: _TarStream) -> None:
    """Raise ArchiveError without an end marker: tarfile stops silently at a damaged header."""
    if len(unpacked.last) != tarfile.BLOCKSIZE or unpacked.last.strip(b"\0"):
        raise ArchiveError("the archive is truncated or damaged: its end is missing")
    while rest := unpacked.read(CHUNK):
        if rest.strip(b"\0"):
            raise ArchiveError("the archive has data after its end")
