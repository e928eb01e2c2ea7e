"""Stores that a test opens several times, as several processes do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from graph.local.store import SqliteSkillGraph
from graph.protocol import SkillGraph
from tests.support.samples.catalog import catalog_settings, empty_catalog, open_catalog


class _Closeable(Protocol):
    def close(self) -> None: ...


_Store = TypeVar("_Store", bound=_Closeable)


@contextmanager
def reopening(open_store: Callable[[], _Store]) -> Iterator[Callable[[], _Store]]:
    """As `open_store`; all that were opened are closed at the end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(open_store()))


@contextmanager
def reopening_sqlite_graph(folder: Path) -> Iterator[Callable[[], SkillGraph]]:
    """Opens the graph in a file of this folder."""
    with reopening(lambda: SqliteSkillGraph(folder / "library.db", writable=True)) as reopen:
        yield reopen


@contextmanager
def reopening_neo4j_graph(
    url: str, password_file: Path | None
) -> Iterator[Callable[[], SkillGraph]]:
    """Opens the graph of this server, which is empty at first."""
    settings = catalog_settings(url, password_file)
    with reopening(lambda: open_catalog(settings)) as reopen:
        unused = [reopen()]
        empty_catalog(settings)
        yield lambda: unused.pop() if unused else reopen()
