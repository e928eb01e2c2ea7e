"""The folder of a library, or of a process that reaches one."""

from __future__ import annotations

from pathlib import Path

from config.errors import UsageError


def create_home(home: Path) -> None:
    """Make the home where it is missing; raises UsageError when that cannot be."""
    try:
        # What lies there, the socket of `serve` too, is its owner's alone.
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{home} is a file; name a folder with SKILLBUS_HOME") from None
    except OSError as error:
        raise UsageError(f"{home} cannot be made: {error.strerror}; set SKILLBUS_HOME") from error
