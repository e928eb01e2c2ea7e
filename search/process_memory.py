"""Memory of this process: settings of malloc, and the return of what is not in use."""

from __future__ import annotations

import ctypes
import mmap
import threading
from weakref import WeakSet

# Options of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

_MAX_ARENAS = 2
_LARGE = 4 << 20
"""Bytes. With 1 MB, a query has twice as many page faults."""

_MAX_FREE = 16 << 20
"""Bytes at the end of the heap that are kept for later use."""

_files: WeakSet[mmap.mmap] = WeakSet()
_lock = threading.Lock()


def limit_malloc() -> None:
    """Make glibc return more of the freed memory to the system; call it before threads start.

    With an arena per thread, each would keep its peak memory. Arrays from `_LARGE` on get a mapping
    of their own, which ends with them: glibc raises that limit to 32 MB by itself when such arrays
    are freed, and holes of their size then stay in its heaps.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, _MAX_ARENAS)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_M_TRIM_THRESHOLD, _MAX_FREE)


def add_mapped_file(file: mmap.mmap) -> None:
    """Let `return_memory` unmap the pages of a file that is mapped for reading."""
    with _lock:
        _files.add(file)


def return_memory() -> None:
    """Return freed memory to the system, and unmap the pages of mapped files.

    Pages of files stay in the system's cache as long as it has room. Each use of one maps it again
    with its neighbours, so that without this, all files would be mapped after some queries.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    if hasattr(mmap, "MADV_DONTNEED"):
        with _lock:
            files = list(_files)
        for file in files:
            file.madvise(mmap.MADV_DONTNEED)
