"""Statistics of the published library in a file, so that processes need not count it.

The file is mapped copy-on-write: nothing is read at start, pages are shared by all processes, and
each process copies only pages whose counts change. The file is replaced as a whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from config.errors import TransientError
from search.scoring.library_statistics import LibraryStatistics, SavedCounts

_FORMAT = 1
_ALIGNMENT = 64
_HEADER_BYTES = 8
_Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class SavedLibrary:
    """The library at an epoch of the catalog. pointers: skill_id -> published seq."""

    epoch: int
    pointers: Mapping[str, int]
    statistics: LibraryStatistics


class SavedLibraryFile:
    """One file with a saved library.

    identity: of everything that determines the content, except the epoch; a file with another
    identity is not used.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self._path = path
        self._identity = identity

    def load(self) -> SavedLibrary | None:
        """Map the file; None if it is missing, unreadable or has another identity."""
        try:
            facts, arrays = _map_arrays(self._path)
            if (facts["format"], facts["identity"]) != (_FORMAT, self._identity):
                return None
            ids = json.loads(arrays["ids"].tobytes())
            statistics = LibraryStatistics.restore(
                SavedCounts(
                    documents=(arrays["terms"], arrays["documents"]),
                    names=(arrays["name_terms"], arrays["names"]),
                    lengths=arrays["lengths"],
                    completed=facts["completed"],
                    size=facts["size"],
                )
            )
            pointers = dict(zip(ids, arrays["seqs"].tolist(), strict=True))
            return SavedLibrary(facts["epoch"], pointers, statistics)
        except (OSError, ValueError, KeyError, TypeError):
            # The library is then counted anew and written again: the file derives from catalog and
            # index.
            return None

    def save(self, library: SavedLibrary) -> None:
        """Replace the file; raises TransientError if the disk is full."""
        counts = library.statistics.save()
        facts = {
            "format": _FORMAT,
            "identity": self._identity,
            "epoch": library.epoch,
            "completed": counts.completed,
            "size": counts.size,
        }
        arrays: dict[str, _Array] = {
            "terms": counts.documents[0],
            "documents": counts.documents[1],
            "name_terms": counts.names[0],
            "names": counts.names[1],
            "lengths": counts.lengths,
            "seqs": np.array(list(library.pointers.values()), dtype="<i8"),
            "ids": np.frombuffer(json.dumps(list(library.pointers)).encode(), dtype="u1"),
        }
        try:
            _write_arrays(self._path, facts, arrays)
        except OSError as error:
            raise TransientError(f"{self._path} cannot be written: {error}") from error

    def delete(self) -> None:
        """Delete the file, if there is one."""
        self._path.unlink(missing_ok=True)


def _write_arrays(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, _Array]) -> None:
    """Write a JSON header and arrays, each aligned, to a new file that replaces the old one once it
    is on disk."""
    entries, offset = {}, 0
    for name, array in arrays.items():
        entries[name] = (array.dtype.str, len(array), offset)
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    header = json.dumps({"facts": facts, "arrays": entries}).encode()
    header += b" " * (-(len(header) + _HEADER_BYTES) % _ALIGNMENT)
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(len(header).to_bytes(_HEADER_BYTES, "little") + header)
        for array in arrays.values():
            file.write(array.tobytes())
            file.write(bytes(-array.nbytes % _ALIGNMENT))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _map_arrays(path: Path) -> tuple[dict[str, Any], dict[str, _Array]]:
    """Map a file of `_write_arrays`; raises OSError, ValueError or KeyError for any other file."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(_HEADER_BYTES), "little")
        if size > path.stat().st_size:  # reading would need as much memory
            raise ValueError(f"{path} has no header")
        header = json.loads(file.read(size))
        start, arrays = _HEADER_BYTES + size, {}
        for name, (dtype, count, offset) in header["arrays"].items():
            arrays[name] = (
                np.asarray(np.memmap(file, dtype, "c", start + offset, (count,)))
                if count
                else np.empty(0, dtype=dtype)
            )
    return header["facts"], arrays
