"""No file imports another one that imports it, directly or by others."""

from __future__ import annotations

import graphlib
from pathlib import Path

import grimp

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


def test_there_is_no_import_circle() -> None:
    """Not even by imports in functions, or for type checking."""
    graph = grimp.build_graph(*ROOMS, cache_dir=None)
    edges = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert edges.keys() == modules().keys()
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
