"""Limits of one upload (members, bytes, ratio, time), checked while it is read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import IO

from config.errors import UsageError
from config.inbound_settings import UploadSettings

CHUNK = 1 << 16
MEGABYTE = 1_000_000
_MIN_RATIO_BYTES = MEGABYTE
_MAX_NAME_SHOWN = 120


class ArchiveError(UsageError):
    """An upload is refused; the message names the member and the reason."""


class UploadTooLargeError(ArchiveError):
    """An upload exceeds one of the limits in `[uploads]`."""


def escape_name(name: str) -> str:
    """Return a member's name for messages: escaped and cut."""
    cut = name if len(name) <= _MAX_NAME_SHOWN else name[:_MAX_NAME_SHOWN] + "…"
    return ascii(cut)


class UploadMeter:
    """Counts members and unpacked bytes of one upload, and checks the time.

    packed_bytes: size of the archive. Every method raises UploadTooLargeError as soon as a limit is
    exceeded.
    """

    def __init__(self, bounds: UploadSettings, packed_bytes: int) -> None:
        self._bounds = bounds
        self._packed = max(packed_bytes, 1)
        self._members = 0
        self._bytes = 0
        self._end = time.monotonic() + bounds.seconds

    def count_member(self, name: str) -> None:
        """Count one member; folders count too."""
        self._members += 1
        if self._members > self._bounds.files:
            raise UploadTooLargeError(
                f"{escape_name(name)}: more than {self._bounds.files} files and folders "
                "(uploads.files)"
            )
        self.check_time()

    def count_bytes(self, count: int, name: str) -> None:
        """Count unpacked bytes. name: name of the member, for the message."""
        self._bytes += count
        if self._bytes > self._bounds.unpacked_megabytes * MEGABYTE:
            raise UploadTooLargeError(
                f"{escape_name(name)}: more than {self._bounds.unpacked_megabytes:g} MB unpacked "
                "(uploads.unpacked_megabytes)"
            )
        if self._bytes > max(_MIN_RATIO_BYTES, self._bounds.ratio * self._packed):
            raise UploadTooLargeError(
                f"{escape_name(name)}: unpacks to more than {self._bounds.ratio:g} times what was "
                "sent (uploads.ratio)"
            )
        self.check_time()

    def check_time(self) -> None:
        """Raise UploadTooLargeError if unpacking has taken too long."""
        if time.monotonic() > self._end:
            raise UploadTooLargeError(
                f"not unpacked within {self._bounds.seconds:g} s (uploads.seconds); "
                "send it in smaller parts"
            )


def iter_chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the rest of a stream in chunks of at most `CHUNK` bytes."""
    while chunk := stream.read(CHUNK):
        yield chunk
