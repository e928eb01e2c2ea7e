"""A bound on the pages of packs that a process holds.

A search reads rows all over the files. The system maps 64 kB around each (`fault_around_bytes`), so
that after some searches a process would hold packs whole. Pages that are released stay in the
system's page cache: to read them again costs about a microsecond each, and nothing from disk.
"""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path
from weakref import WeakSet

MAX_RESIDENT_BYTES = 384 << 20
"""Pages of files that a process holds before those of packs are released. Programs and libraries
are a hundred megabytes of them."""

_STATM = Path("/proc/self/statm")

_maps: WeakSet[mmap.mmap] = WeakSet()
_lock = threading.Lock()


def bound(mapped: mmap.mmap) -> None:
    """Let `release_pages` release the pages of this map, as long as it is open."""
    with _lock:
        _maps.add(mapped)


def release_pages(most: int = MAX_RESIDENT_BYTES) -> None:
    """Release the pages of all bounded maps if this process holds more than `most` bytes of files.

    Other threads may read the maps meanwhile. Where the system does not say how much is held
    (macOS), nothing is released.
    """
    if _count_resident_bytes() <= most:
        return
    with _lock:
        maps = list(_maps)
    for mapped in maps:
        mapped.madvise(mmap.MADV_DONTNEED)


def _count_resident_bytes() -> int:
    """The bytes of mapped files that this process holds."""
    try:
        shared = _STATM.read_bytes().split()[2]
    except FileNotFoundError:
        return 0
    return int(shared) * os.sysconf("SC_PAGE_SIZE")
