"""Garbage collection settings of processes that answer requests, for few and short pauses."""

from __future__ import annotations

import gc

_THRESHOLD = 10_000
"""Number of new objects after which young objects are collected. With Python's 700, a page or query
of some size makes a full collection likely, which stops it for 30 to 40 ms."""
_DEFAULT_THRESHOLDS = gc.get_threshold()


def freeze_loaded_objects() -> None:
    """Exclude all present objects from garbage collection, and collect more rarely.

    It is for modules, models and a library that are never freed: a full collection would
    spend 0.1 s or more on them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_THRESHOLD, *gc.get_threshold()[1:])


def unfreeze_loaded_objects() -> None:
    """Undo `freeze_loaded_objects`."""
    gc.unfreeze()
    gc.set_threshold(*_DEFAULT_THRESHOLDS)
