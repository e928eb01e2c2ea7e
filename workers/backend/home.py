"""The home: the folder of a library, or of a process that uses one. Its lock lets one process at
a time write to it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from config.errors import UsageError, transient_disk_errors


def create_home(home: Path) -> None:
    """Create the home if it is missing; raises UsageError if that fails."""
    try:
        # Other users must not reach its files, especially the socket of `serve`.
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{home} is a file; name a folder with SKILLBUS_HOME") from None
    except OSError as error:
        raise UsageError(
            f"{home} cannot be created: {error.strerror}; set SKILLBUS_HOME"
        ) from error


class WriterLock:
    """An advisory lock on `writer.lock` in the home; the kernel frees it when the process ends."""

    def __init__(self, home: Path) -> None:
        self._path = home / "writer.lock"
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock; raises UsageError that names the process holding it, TransientError if the
        file cannot be written."""
        with transient_disk_errors(f"{self._path} cannot be written"):
            file = self._path.open("a+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                file.close()
                raise UsageError(
                    f"{self._path.parent} is locked by {holder}; wait until it has "
                    "finished, or `skillbus serve` has started, or use another SKILLBUS_HOME"
                ) from None
            file.truncate(0)
            file.write(f"process {os.getpid()}")
            file.flush()
        self._file = file

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None
