"""The file `answers.db` of a home, in which the embedded stores of the language model are."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from config.errors import PermanentError, TransientError
from tasks.sqlite_file import SqliteFile, is_busy

SCHEMA_VERSION = 1

_ADVICE = "move it away to start anew: the model is asked again for what was in it"
_OPEN_SECONDS = 10.0
_META = """
CREATE TABLE IF NOT EXISTS meta (schema_version INTEGER NOT NULL);
INSERT INTO meta SELECT 1 WHERE NOT EXISTS (SELECT * FROM meta);
"""


def open_answers_file(path: Path | str, tables: str) -> SqliteFile:
    """Open the file, created if it is missing, with these tables.

    tables: statements that create the tables and indexes of one store, where they are missing.
    Raises TransientError when another process keeps it locked, PermanentError when it is damaged,
    cannot be opened or has another schema.
    """
    end = time.monotonic() + _OPEN_SECONDS
    # Of processes that create it at the same time, some fail at once, without the wait for a lock
    # that other statements have.
    while True:
        try:
            return _open_once(path, tables)
        except sqlite3.DatabaseError as error:
            if not is_busy(error):
                raise PermanentError(
                    f"{path}: the answers of the language model cannot be opened ({error}); "
                    f"{_ADVICE}"
                ) from error
            if time.monotonic() > end:
                raise TransientError(
                    f"{path}: another process keeps the answers of the language model locked"
                ) from error
        time.sleep(0.01)


def _open_once(path: Path | str, tables: str) -> SqliteFile:
    file = SqliteFile(path, "the file with answers of the language model", _ADVICE)
    try:
        file.connection.executescript(f"BEGIN IMMEDIATE;{_META}{tables}COMMIT;")
        (version,) = file.connection.execute("SELECT schema_version FROM meta").fetchone()
    except BaseException:
        file.close()
        raise
    if version != SCHEMA_VERSION:
        file.close()
        raise PermanentError(
            f"{path}: answers of schema {version}, this skillbus reads {SCHEMA_VERSION}; "
            "use the version that wrote them, or another SKILLBUS_HOME"
        )
    return file
