"""Directories that may become sources, when somebody asks for it who is not the user."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from config.errors import UsageError
from graph.protocol import Catalog


def resolve_root(
    graph: Catalog, source_id: str, root: str, allowed: Iterable[Path], setting: str
) -> str:
    """A directory as it may be read for a source, links followed; raises UsageError for any other.

    It may be what the source has already, or lie below those that are allowed by a setting.
    """
    if any(one.source_id == source_id and one.root == root for one in graph.list_sources()):
        return root
    try:
        real = Path(root).resolve(strict=True)
        roots = [one.resolve(strict=True) for one in allowed]
    # Python's word for links that lead in a circle is a RuntimeError.
    except (OSError, ValueError, RuntimeError):
        real, roots = Path(root), []
    inside = any(real.is_relative_to(one) for one in roots)
    if not (Path(root).is_absolute() and inside and real.is_dir()):
        raise UsageError(
            f"source {source_id!r} is not known with root {root[:200]!r}: only directories below "
            f"those of {setting} can become sources"
        )
    return str(real)
