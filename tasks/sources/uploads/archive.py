"""What an archive is made of, and how archives are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasks.sources.uploads.limits import ArchiveError

HEADER_BYTES = 512
"""Bytes that tell which kind of upload it is."""

_TAR_MARK = slice(257, 262)


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One entry, under the name as it stands in the archive; `content` is None for a folder."""

    name: str
    content: Iterator[bytes] | None


def detect_archive_kind(head: bytes) -> str:
    """`zip`, `tar`, `tar.gz`, `tar.bz2`, `tar.xz` or `text`, by the first `HEAD` bytes.

    Raises ArchiveError for what cannot be any of them.
    """
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return "zip"
    if head.startswith(b"\x1f\x8b"):
        return "tar.gz"
    if head.startswith(b"BZh"):
        return "tar.bz2"
    if head.startswith(b"\xfd7zXZ\0"):
        return "tar.xz"
    if head[_TAR_MARK] == b"ustar":
        return "tar"
    if not head:
        raise ArchiveError("nothing was sent")
    if b"\0" in head:
        raise ArchiveError("neither a zip, a tar (.gz, .bz2, .xz) nor the text of a SKILL.md")
    return "text"
