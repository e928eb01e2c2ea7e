"""Loads named SQL and Cypher statements from files of a package."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^(?:--|//) name: (\w+)\n", re.MULTILINE)


def read_text(package: str, *path: str) -> str:
    """The text of a file of a package."""
    return files(package).joinpath(*path).read_text(encoding="utf-8")


def load_statements(package: str, *path: str) -> dict[str, str]:
    """Name -> statement; a line `-- name: NAME` or `// name: NAME` precedes each."""
    parts = _NAME.split(read_text(package, *path))
    return {
        name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def insert_fragment(statements: dict[str, str], name: str) -> dict[str, str]:
    """The statements with `$$NAME` replaced by the text of the one of this name, which is left out
    itself, as it is a part of others."""
    text = statements.get(name, "")
    return {
        one: other.replace(f"$${name}", text) for one, other in statements.items() if one != name
    }
