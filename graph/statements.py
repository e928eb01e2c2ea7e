"""Statements kept by name in files of this package."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^(?:--|//) name: (\w+)\n", re.MULTILINE)


def read_text(*path: str) -> str:
    """The text of a file of this package."""
    return files("graph").joinpath(*path).read_text(encoding="utf-8")


def named_statements(*path: str) -> dict[str, str]:
    """The statements of a file, by the `-- name:` or `// name:` line above each."""
    parts = _NAME.split(read_text(*path))
    return {
        name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }
