"""Settings of glibc's malloc that keep the memory of a process with many threads small."""

from __future__ import annotations

import ctypes

# Options of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

_MAX_ARENAS = 2
_LARGE = 4 << 20
"""Bytes. With 1 MB, a query has twice as many page faults."""

_MAX_FREE = 16 << 20
"""Bytes at the end of the heap that are kept for later use."""


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
