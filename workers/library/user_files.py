"""Reads and writes files that a user names."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from config.errors import UsageError


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, without a byte order mark; raises UsageError if it cannot be
    read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; raises UsageError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text as `write_atomically` does."""
    write_atomically(path, text.encode())


def write_atomically(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file completely or not at all; raises UsageError if that fails.

    A link stays a link, and a device such as `/dev/null` is written to, not replaced. mode: exact
    permissions; by default those of new files.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        temporary.unlink(missing_ok=True)
        rights = 0o666 if mode is None else 0o600
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, rights)) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):  # a read-only file system refuses this too
            temporary.unlink()
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
