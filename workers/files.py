"""Reading files that a user names."""

from __future__ import annotations

from pathlib import Path

from config.errors import UsageError


def read_text(path: Path) -> str:
    """A UTF-8 text file of the user's; raises UsageError that says what is wrong with it."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
