"""Processes that can be started, and their interfaces; the composition root."""

import sys
from importlib.util import find_spec
from pathlib import Path

# `PYTHONPATH` may put another `config` before ours; it would be executed. Finding a package
# imports nothing.
_ROOT = Path(__file__).resolve().parents[1]
for _room in ("config", "graph", "search", "skills", "tasks"):
    _spec = find_spec(_room)
    _origin = _spec.origin if _spec is not None else None
    if _origin is None or Path(_origin).resolve().parents[1] != _ROOT:
        sys.exit(
            f"skillbus: the package {_room!r} would be imported from {_origin} and not from "
            f"{_ROOT}; unset PYTHONPATH"
        )
