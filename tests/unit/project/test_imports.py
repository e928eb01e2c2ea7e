"""No file imports another one that imports it, directly or by others."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("config", "skills", "search", "graph", "tasks", "workers")


def modules() -> dict[str, Path]:
    """The files of the rooms by module name."""
    found = {}
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = file
    return found


def imported(file: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules that a file imports, in functions and for type checking too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else str(node.module)


def test_there_is_no_import_circle() -> None:
    known = modules()
    edges = {
        name: {other for other in imported(file, known) if other in known and other != name}
        for name, file in known.items()
    }
    assert len(edges) > 300
    assert sum(map(len, edges.values())) > 1_000
    graphlib.TopologicalSorter(edges).prepare()


def test_modules_and_folders_stay_small() -> None:
    known = modules()
    long = [name for name, file in known.items() if len(file.read_text().splitlines()) > 400]
    full = [
        folder
        for folder in {file.parent for file in known.values()}
        if len(list(folder.glob("*.py"))) > 16
    ]
    assert not long
    assert not full
