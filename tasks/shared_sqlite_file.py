"""SQLite file of a home that several processes create, read and write."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from config.errors import PermanentError, TransientError
from tasks.sqlite_file import SqliteFile, choose_advice, is_busy

_OPEN_SECONDS = 10.0
_META = """
CREATE TABLE IF NOT EXISTS meta (schema_version INTEGER NOT NULL);
INSERT INTO meta SELECT {version} WHERE NOT EXISTS (SELECT * FROM meta);
"""


@dataclass(frozen=True, slots=True)
class SharedFile:
    """Description of a shared file.

    content: name of its content for messages, such as `answers of the language model`. advice: what
    to do when the file is damaged. version: version of its schema.
    """

    content: str
    advice: str
    version: int

    def open(self, path: Path | str, tables: str) -> SqliteFile:
        """Open the file, created if it is missing, with these tables.

        tables: statements that create the missing tables and indexes of one store. Raises
        TransientError when another process keeps the file locked, PermanentError when it is
        damaged, cannot be opened or has another schema.
        """
        end = time.monotonic() + _OPEN_SECONDS
        # Some of several processes that create the file at the same time fail at once, without
        # waiting for a lock as other statements do.
        while True:
            try:
                return self._open_once(path, tables)
            except sqlite3.DatabaseError as error:
                if not is_busy(error):
                    raise PermanentError(
                        f"{path}: the {self.content} cannot be opened ({error}); "
                        f"{choose_advice(error, self.advice)}"
                    ) from error
                if time.monotonic() > end:
                    raise TransientError(
                        f"{path}: another process keeps the {self.content} locked"
                    ) from error
            time.sleep(0.01)

    def _open_once(self, path: Path | str, tables: str) -> SqliteFile:
        file = SqliteFile(path, f"the file with {self.content}", self.advice)
        try:
            meta = _META.format(version=self.version)
            file.connection.executescript(f"BEGIN IMMEDIATE;{meta}{tables}COMMIT;")
            (version,) = file.connection.execute("SELECT schema_version FROM meta").fetchone()
        except BaseException:
            file.close()
            raise
        if version != self.version:
            file.close()
            raise PermanentError(
                f"{path}: the {self.content} have schema {version}, this version of skillbus "
                f"reads {self.version}; use the version that wrote them, or another SKILLBUS_HOME"
            )
        return file
