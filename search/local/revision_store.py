"""SQLite store of the embedded index: revisions by row number, and vectors by text hash."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path

from config.errors import PermanentError, TransientError
from search.blob_codec import (
    dequantise,
    pack_filters,
    pack_forward,
    pack_hashes,
    pack_passage_terms,
    quantise,
    unpack_hashes,
)
from search.protocol import SkillDocument, Vector
from search.skill_analysis import skill_text_hashes
from skills import record_codec
from skills.batches import batches
from skills.record import RevisionKey

BUSY_SECONDS = 20.0
"""Seconds that a statement waits for a lock of another process."""

SQL_BATCH = 400
"""Rows or hashes per SQL statement, below SQLite's limit of bound parameters."""

_CLOSED = "this search index has been closed"


def select_vectors(
    connection: sqlite3.Connection, hashes: Iterable[bytes]
) -> Iterator[tuple[bytes, float, bytes]]:
    """Yield (text hash, scale, data) of the stored vectors with these hashes; see `dequantise`."""
    for batch in batches(dict.fromkeys(hashes), SQL_BATCH):
        slots = ", ".join("?" * len(batch))
        rows = connection.execute(
            f"SELECT hash, scale, data FROM vectors WHERE hash IN ({slots})",  # noqa: S608 - only placeholders
            batch,
        )
        for text, scale, data in rows:
            yield bytes(text), scale, data


class RevisionStore:
    """Rows and vectors in one SQLite file (WAL): many readers, one writer, synced commits.

    identity: schema, model and dimension, stored when the file is created; PermanentError is
    raised if they differ later. A locked or full store raises TransientError, a damaged one
    PermanentError.
    """

    def __init__(self, path: Path, identity: dict[str, str], *, writable: bool) -> None:
        self._path = path
        self._writable = writable
        self._model = identity["model"]
        self._readers: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._opened: list[sqlite3.Connection] = []
        self._write_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._watch_lock = threading.Lock()
        self._watch: sqlite3.Connection | None = None
        self._closed = False
        if not writable and not path.exists():
            raise PermanentError(f"there is no search index at {path.parent}; sync a source first")
        if writable:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self.write_transaction() as connection:
                connection.executescript(
                    "BEGIN IMMEDIATE;"
                    + files("search.local").joinpath("schema.sql").read_text(encoding="utf-8")
                )
                connection.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", identity.items())
        self._check(identity)

    def _check(self, identity: dict[str, str]) -> None:
        with self.read_connection() as connection:
            stored = dict(connection.execute("SELECT name, value FROM meta"))
        for name, value in identity.items():
            if stored.get(name) != value:
                back = "" if name == "schema" else "set it back, or "
                raise PermanentError(
                    f"the search index at {self._path.parent} was made with {name} "
                    f"{stored.get(name)!r}, not {value!r}: {back}run `skillbus reindex`"
                )

    # -- connections

    @contextmanager
    def read_connection(self) -> Iterator[sqlite3.Connection]:
        """Borrow a connection from the pool; it sees the last commit."""
        with self._translate_errors():
            try:
                connection = self._readers.get_nowait()
            except queue.Empty:
                connection = self._connect()
            try:
                yield connection
            finally:
                self._readers.put(connection)

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block in a transaction of the writing connection; an exception rolls it back."""
        if not self._writable:
            raise PermanentError("this search index was opened for reading only")
        with self._write_lock, self._translate_errors():
            if self._writer is None:
                self._writer = self._connect()
            connection = self._writer
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise PermanentError(_CLOSED)
        connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._opened.append(connection)
        if self._writable:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        else:
            connection.execute("PRAGMA query_only = ON")
        return connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise TransientError(
                f"the search index at {self._path.parent} is busy, full or unreachable: {error}"
            ) from error
        except sqlite3.DatabaseError as error:
            if self._closed:  # by another thread, which also closed the connections in use
                raise PermanentError(_CLOSED) from error
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise  # an error in a statement
            raise PermanentError(
                f"the search index at {self._path.parent} is damaged ({error}); delete that "
                "folder and ingest again"
            ) from error

    def data_version(self) -> int:
        """Return a number that changes with every commit of any connection or process."""
        with self._watch_lock, self._translate_errors():
            if self._watch is None:
                self._watch = self._connect()
            return int(self._watch.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Close every connection; later calls raise PermanentError."""
        self._closed = True
        with self._write_lock:
            self._writer = self._watch = None
            for connection in self._opened:
                connection.close()
            self._opened.clear()
            self._readers = queue.LifoQueue()

    # -- writing

    def insert(self, documents: Sequence[SkillDocument]) -> list[int | None]:
        """Write rows and skill vectors in one synced transaction.

        Returns the row number of each document, None for a revision that is stored already.
        """
        with self.write_transaction() as connection:
            return [self._insert(connection, document) for document in documents]

    def _insert(self, connection: sqlite3.Connection, document: SkillDocument) -> int | None:
        hashes = skill_text_hashes(self._model, document.parsed)
        number = connection.execute(
            "INSERT OR IGNORE INTO revisions (skill_id, seq, content_hash, filters, vector_hashes,"
            " section_hashes, parsed, forward, passage_terms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " RETURNING number",
            (
                document.key.skill_id,
                document.key.seq,
                document.content_hash,
                pack_filters(document.filters),
                pack_hashes(hashes),
                pack_hashes(document.section_hashes),
                record_codec.dump(document.parsed),
                pack_forward(document.forward),
                pack_passage_terms(document.passage_terms),
            ),
        ).fetchone()
        if number is None:
            return None
        if document.vectors is not None:
            _insert_skill_vectors(connection, number[0], hashes, document.vectors)
        if document.forward.completed:
            connection.execute("INSERT INTO completed VALUES (?)", number)
        _mark_embedded(connection, number[0], document.section_hashes)
        used = dict.fromkeys((*hashes, *document.section_hashes))
        connection.executemany(
            "INSERT OR IGNORE INTO uses VALUES (?, ?)", ((text, number[0]) for text in used)
        )
        return int(number[0])

    def put_skill_vectors(self, vectors: Mapping[RevisionKey, Vector]) -> None:
        """Store both vectors (2, dimension) of revisions; revisions without a row are left out."""
        with self.write_transaction() as connection:
            for key, number in self.row_numbers(list(vectors), connection).items():
                stored = connection.execute(
                    "SELECT vector_hashes FROM revisions WHERE number = ?", (number,)
                )
                hashes = unpack_hashes(stored.fetchone()[0])
                _insert_skill_vectors(connection, number, hashes, vectors[key])

    def put_vectors(self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector) -> None:
        """Store section vectors as int8; without a row for `key` nothing is stored."""
        with self.write_transaction() as connection:
            number = self.row_numbers([key], connection).get(key)
            if number is None:
                return
            for text, vector in zip(hashes, vectors, strict=True):
                connection.execute(
                    "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", (text, *quantise(vector))
                )
                connection.execute("INSERT OR IGNORE INTO uses VALUES (?, ?)", (text, number))
            stored = connection.execute(
                "SELECT section_hashes FROM revisions WHERE number = ?", (number,)
            )
            _mark_embedded(connection, number, unpack_hashes(stored.fetchone()[0]))

    def delete(self, numbers: Sequence[int]) -> None:
        """Delete rows, and the vectors that no other row uses."""
        with self.write_transaction() as connection:
            for number in numbers:
                row = connection.execute(
                    "SELECT vector_hashes, section_hashes FROM revisions WHERE number = ?",
                    (number,),
                ).fetchone()
                if row is None:
                    continue
                hashes = set(unpack_hashes(row[0]) + unpack_hashes(row[1]))
                connection.executemany(
                    "DELETE FROM uses WHERE hash = ? AND number = ?",
                    ((text, number) for text in hashes),
                )
                connection.executemany(
                    "DELETE FROM vectors WHERE hash = ?"
                    " AND NOT EXISTS (SELECT 1 FROM uses WHERE uses.hash = vectors.hash)",
                    ((text,) for text in hashes),
                )
                for table in ("revisions", "completed", "with_vectors", "embedded"):
                    connection.execute(f"DELETE FROM {table} WHERE number = ?", (number,))  # noqa: S608 - constants

    def overwrite_deleted(self) -> None:
        """Write the file anew, so that neither it nor its log holds anything of deleted rows.

        Raises TransientError while another connection reads or writes.
        """
        with self.read_connection() as connection:
            connection.execute("VACUUM")
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise TransientError(
                f"{self._path}: deleted rows cannot be overwritten while another process reads; "
                "stop it and try again"
            )

    # -- reading

    def row_numbers(
        self, keys: Sequence[RevisionKey], connection: sqlite3.Connection | None = None
    ) -> dict[RevisionKey, int]:
        """Return the row numbers of the given revisions that are stored."""
        if connection is None:
            with self.read_connection() as reader:
                return self.row_numbers(keys, reader)
        found: dict[RevisionKey, int] = {}
        for key in keys:
            row = connection.execute(
                "SELECT number FROM revisions WHERE skill_id = ? AND seq = ?", key
            ).fetchone()
            if row is not None:
                found[key] = int(row[0])
        return found

    def columns(
        self, keys: Sequence[RevisionKey], names: Sequence[str]
    ) -> dict[RevisionKey, tuple[bytes, ...]]:
        """Return columns of the given revisions that are stored; `names` are trusted SQL."""
        statement = f"SELECT {', '.join(names)} FROM revisions WHERE skill_id = ? AND seq = ?"  # noqa: S608 - constants of this package
        found = {}
        with self.read_connection() as connection:
            for key in keys:
                row = connection.execute(statement, key).fetchone()
                if row is not None:
                    found[key] = tuple(row)
        return found

    def vectors(self, hashes: Iterable[bytes]) -> dict[bytes, Vector]:
        """Return vectors by text hash; a hash without a vector is left out."""
        with self.read_connection() as connection:
            return {
                text: dequantise(scale, data)
                for text, scale, data in select_vectors(connection, hashes)
            }

    def identity(self) -> str:
        """Return the unique id of this store."""
        with self.read_connection() as connection:
            return str(connection.execute("SELECT identity FROM store").fetchone()[0])

    def max_seq(self) -> int:
        """Return the highest seq of any revision, 0 without any."""
        with self.read_connection() as connection:
            return int(connection.execute("SELECT max(seq) FROM revisions").fetchone()[0] or 0)

    def keys_of(self, numbers: Sequence[int]) -> dict[int, RevisionKey]:
        """Return revisions by row number; deleted revisions are left out."""
        found = {}
        with self.read_connection() as connection:
            for batch in batches(numbers, SQL_BATCH):
                slots = ", ".join("?" * len(batch))
                for number, *key in connection.execute(
                    f"SELECT number, skill_id, seq FROM revisions WHERE number IN ({slots})",  # noqa: S608 - only placeholders
                    batch,
                ):
                    found[number] = RevisionKey(*key)
        return found

    def completed_keys(self) -> dict[int, RevisionKey]:
        """Return the revisions that a language model completed, by row number."""
        with self.read_connection() as connection:
            rows = connection.execute(
                "SELECT number, skill_id, seq FROM completed JOIN revisions USING (number)"
                " ORDER BY number"
            )
            return {number: RevisionKey(skill_id, seq) for number, skill_id, seq in rows}

    def keys(self) -> dict[int, RevisionKey]:
        """Return every revision by row number, unordered, so that the index of keys suffices."""
        with self.read_connection() as connection:
            rows = connection.execute("SELECT number, skill_id, seq FROM revisions")
            return {number: RevisionKey(skill_id, seq) for number, skill_id, seq in rows}


def _insert_skill_vectors(
    connection: sqlite3.Connection, number: int, hashes: Sequence[bytes], vectors: Vector
) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO vectors VALUES (?, 0, ?)",
        (
            (text, vector.astype("<f4").tobytes())
            for text, vector in zip(hashes, vectors, strict=True)
        ),
    )
    connection.execute("INSERT OR IGNORE INTO with_vectors (number) VALUES (?)", (number,))


def _mark_embedded(
    connection: sqlite3.Connection, number: int, section_hashes: Iterable[bytes]
) -> None:
    """Add a revision to the table `embedded` if all its sections have vectors."""
    hashes = dict.fromkeys(section_hashes)
    known = (
        connection.execute("SELECT 1 FROM vectors WHERE hash = ?", (text,)).fetchone()
        for text in hashes
    )
    if hashes and all(known):
        connection.execute("INSERT OR IGNORE INTO embedded (number) VALUES (?)", (number,))


def read_identity(folder: Path) -> dict[str, str] | None:
    """Return the identity of the index in a folder; None without an index."""
    path = folder / "revisions.sqlite"
    if not path.exists():
        return None
    try:
        # As a URI: a folder may have characters with a meaning in one, such as # or %.
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return dict(connection.execute("SELECT name, value FROM meta"))
    except sqlite3.Error as error:
        raise PermanentError(f"the search index at {folder} cannot be read: {error}") from error
