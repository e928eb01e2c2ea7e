"""The home: the folder of a library, or of a process that uses one."""

from __future__ import annotations

from pathlib import Path

from config.errors import UsageError


def create_home(home: Path) -> None:
    """Create the home if it is missing; raises UsageError if that fails."""
    try:
        # Only the owner may use its files, the socket of `serve` among them.
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{home} is a file; name a folder with SKILLBUS_HOME") from None
    except OSError as error:
        raise UsageError(
            f"{home} cannot be created: {error.strerror}; set SKILLBUS_HOME"
        ) from error
