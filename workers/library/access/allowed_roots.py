"""Directories that remote callers may add as sources."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from config.errors import UsageError
from graph.protocol import Catalog


def resolve_root(
    graph: Catalog, source_id: str, root: str, allowed: Iterable[Path], setting: str
) -> str:
    """Return the directory to read for a source, with links resolved.

    allowed: the value of `setting`. Raises UsageError unless the directory is the present root of
    the source or below one of the allowed directories.
    """
    if any(one.source_id == source_id and one.root == root for one in graph.list_sources()):
        return root
    try:
        real = Path(root).resolve(strict=True)
        roots = [one.resolve() for one in allowed]  # some may be missing
    # Path.resolve raises RuntimeError for a loop of links.
    except (OSError, ValueError, RuntimeError):
        real, roots = Path(root), []
    inside = any(real.is_relative_to(one) for one in roots)
    if not (Path(root).is_absolute() and inside and real.is_dir()):
        raise UsageError(
            f"directory {root[:200]!r} is not allowed for source {source_id!r}: it must be below "
            f"one of {setting}"
        )
    return str(real)
