"""Traces of a text in the files of a folder: as they are, and as the stores compress them."""

from __future__ import annotations

import gzip
import io
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_SQLITE = b"SQLite format 3\0"


def find_traces(folder: Path, words: Sequence[str]) -> list[str]:
    """`file: word` for each word that is in a file of the folder.

    Searched are the bytes of every file (so also free pages, logs and dictionaries), each zlib
    stream that begins anywhere in them, gzip and zip files, every value of every SQLite table
    with the streams in it (a long one lies in several pages), and names of files.
    """
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            texts = [str(path.relative_to(folder)).encode(), *_read_texts(path)]
            found += [
                f"{path.relative_to(folder)}: {word}"
                for word in words
                if any(word.encode().lower() in text.lower() for text in texts)
            ]
    return found


def _read_texts(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    yield from expand(data)
    if data.startswith(_SQLITE):
        for value in _read_values(path):
            yield from expand(value)


def expand(data: bytes) -> Iterator[bytes]:
    """The bytes, and what zlib, gzip and zip streams in them hold."""
    yield data
    if data.startswith(b"\x1f\x8b"):
        yield gzip.decompress(data)
    if data.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    for match in _ZLIB.finditer(data):
        # A stream whose end was overwritten still gives its beginning.
        text = _inflate(data[match.start() :])
        if text:
            yield text


def _inflate(data: bytes) -> bytes:
    stream, text = zlib.decompressobj(), b""
    try:
        for start in range(0, len(data), 64):
            text += stream.decompress(data[start : start + 64])
            if stream.eof:
                break
    except zlib.error:
        pass
    return text


def _read_values(path: Path) -> Iterator[bytes]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in names:
            for row in connection.execute(f'SELECT * FROM "{name}"'):
                for value in row:
                    if isinstance(value, str):
                        yield value.encode("utf-8", "surrogatepass")
                    elif isinstance(value, bytes):
                        yield value
