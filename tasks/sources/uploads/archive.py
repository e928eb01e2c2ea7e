"""Members of archives, and detection of the kind of an archive."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tasks.sources.uploads.limits import ArchiveError

HEADER_BYTES = 512
"""Number of bytes that `detect_archive_kind` needs."""

ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    LookupError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""Errors that zipfile raises for a damaged or malicious file."""

_TAR_MAGIC = slice(257, 262)


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One member of an archive. name: unchecked. content: None for a folder."""

    name: str
    content: Iterator[bytes] | None


def detect_archive_kind(head: bytes) -> str:
    """Return `zip`, `tar`, `tar.gz`, `tar.bz2`, `tar.xz` or `text`. head: the first `HEADER_BYTES`.

    Raises ArchiveError for any other content.
    """
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return "zip"
    if head.startswith(b"\x1f\x8b"):
        return "tar.gz"
    if head.startswith(b"BZh"):
        return "tar.bz2"
    if head.startswith(b"\xfd7zXZ\0"):
        return "tar.xz"
    if head[_TAR_MAGIC] == b"ustar":
        return "tar"
    if not head:
        raise ArchiveError("the upload is empty")
    if b"\0" in head:
        raise ArchiveError("the upload is not a zip, tar (.gz, .bz2, .xz) or SKILL.md text")
    return "text"
