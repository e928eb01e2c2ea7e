"""Columns of rows in files that grow at the end and are mapped into memory.

A process that maps them reads nothing at start, and the pages that it touches are shared with all
others. The files do not record how many of their rows are valid: bytes beyond these belong to an
interrupted append, and the next append overwrites them. Files are never shortened while they may be
mapped, since touching a page that is gone kills a process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from search.fsync import fsync_folder
from search.process_memory import add_mapped_file

Array = npt.NDArray[Any]

_ENDS = "<i8"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of values of `dtype`, little-endian, `width` of them to an entry.

    lists: name of the lists that the entries belong to, which columns may share: a row then has
    any number of entries. "" for one entry per row.
    """

    name: str
    dtype: str
    width: int = 1
    lists: str = ""

    def entries(self, values: Array) -> Array:
        """Return values as entries: (n,), or (n, width) of a wider column."""
        return values.reshape(-1, self.width) if self.width > 1 else values


class Block(NamedTuple):
    """Rows to append.

    values: the entries of each column, those of all rows below each other. lengths: by name of the
    lists, the number of entries of every row.
    """

    rows: int
    values: Mapping[str, Array]
    lengths: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class MappedColumns:
    """The first `rows` rows, read-only.

    values: the entries of each column. ends: by name of the lists, the place behind the last entry
    of every row, int64 (rows,). constants: from which derived columns were computed.
    """

    rows: int
    values: Mapping[str, Array]
    ends: Mapping[str, npt.NDArray[np.int64]]
    constants: Mapping[str, Array] = field(default_factory=dict)

    def bounds(self, lists: str, places: Array) -> tuple[Array, Array]:
        """Return the first place and the end of the entries of each row."""
        ends = self.ends[lists]
        return np.where(places > 0, ends[places - 1], 0), ends[places]


def map_columns(folder: Path, columns: Sequence[Column], rows: int) -> MappedColumns | None:
    """Map the first `rows` rows; None if files are missing, unreadable or too short for them."""
    try:
        ends = {name: _map(_ends_path(folder, name), _ENDS, rows) for name in _list_names(columns)}
        values = {}
        for column in columns:
            entries = _count_entries(column, rows, ends)
            flat = _map(_path(folder, column), column.dtype, entries * column.width)
            values[column.name] = column.entries(flat)
    except (OSError, ValueError):  # ValueError: of a file that is too short
        return None
    return MappedColumns(rows, values, ends)


def append_rows(folder: Path, columns: Sequence[Column], rows: int, blocks: Iterable[Block]) -> int:
    """Write blocks behind the first `rows` rows; returns the new number of rows.

    The rows are on disk when this returns. Raises OSError; the first `rows` rows are then
    unchanged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        lists = {}
        last = {}
        for name in _list_names(columns):
            lists[name] = stack.enter_context(_open(_ends_path(folder, name)))
            last[name] = _seek_end(lists[name], rows)
        files = {}
        for column in columns:
            files[column.name] = file = stack.enter_context(_open(_path(folder, column)))
            entries = last[column.lists] if column.lists else rows
            file.seek(entries * column.width * np.dtype(column.dtype).itemsize)
        for block in blocks:
            for name, file in lists.items():
                ends = np.cumsum(block.lengths[name], dtype=_ENDS) + last[name]
                file.write(ends.tobytes())
                last[name] = int(ends[-1]) if len(ends) else last[name]
            for column in columns:
                values = np.ascontiguousarray(block.values[column.name], dtype=column.dtype)
                files[column.name].write(values.tobytes())
            rows += block.rows
        for file in (*lists.values(), *files.values()):
            file.flush()
            os.fsync(file.fileno())
    fsync_folder(folder)
    fsync_folder(folder.parent)
    return rows


def _open(path: Path) -> Any:
    """Open a file for reading and writing at any position, without truncating it."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b")


def _seek_end(file: Any, rows: int) -> int:
    """Move the position behind the first `rows` ends; returns the last of them, 0 without rows."""
    size = np.dtype(_ENDS).itemsize
    file.seek(max(rows - 1, 0) * size)
    return int(np.frombuffer(file.read(size), dtype=_ENDS)[0]) if rows else 0


def _map(path: Path, dtype: str, count: int) -> Array:
    if not count:
        return np.empty(0, dtype=dtype)
    with path.open("rb") as file:
        mapped = mmap(file.fileno(), count * np.dtype(dtype).itemsize, access=ACCESS_READ)
    add_mapped_file(mapped)
    return np.frombuffer(mapped, dtype=dtype)


def _count_entries(column: Column, rows: int, ends: Mapping[str, Array]) -> int:
    if not column.lists:
        return rows
    return int(ends[column.lists][-1]) if rows else 0


def _list_names(columns: Iterable[Column]) -> Iterator[str]:
    yield from dict.fromkeys(column.lists for column in columns if column.lists)


def _path(folder: Path, column: Column) -> Path:
    return folder / column.name


def _ends_path(folder: Path, lists: str) -> Path:
    return folder / f"{lists}.ends"
