"""Loads named SQL and Cypher statements from files of a package."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

_NAME = re.compile(r"^(?:--|//) name: (\w+)\n", re.MULTILINE)


def read_text(package: str, *path: str) -> str:
    """Return the text of a file of a package."""
    return files(package).joinpath(*path).read_text(encoding="utf-8")


def load_statements(package: str, *path: str) -> dict[str, str]:
    """Return name -> statement; a line `-- name: NAME` or `// name: NAME` precedes each."""
    parts = _NAME.split(read_text(package, *path))
    return {
        name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def add_conditions(statement: str, conditions: Iterable[str]) -> str:
    """Replace `$$conditions` in a statement by these conditions, each preceded by AND."""
    return statement.replace("$$conditions", "".join(f"AND {one} " for one in conditions))
