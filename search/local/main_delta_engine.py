"""Lexical engine of the embedded index in two parts: a main engine and a small delta.

After every eighth commit, tantivy merges new segments with all segments of up to 16,000 documents.
That took half of the processor time of an edit, and the merge policy cannot be set from Python. So
documents are added to the delta, where merges are cheap, and move to the main engine many at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from search.local.tantivy_engine import EngineDocument, TantivyEngine
from search.protocol import Filters

MAX_DELTA = 250
"""Number of documents of the delta at which all of them move to the main engine: 1,000 would take
5 ms of a query."""


class MainDeltaEngine:
    """A `TantivyEngine` in `folder`, and another one next to it for the newest documents.

    Scores have the idf of the main engine, unless it is empty. The caller must serialise writes. A
    process that dies while documents move leaves them in both engines; they are found once.
    """

    def __init__(self, folder: Path, *, writable: bool) -> None:
        self._writable = writable
        self._main = TantivyEngine(folder, writable=writable)
        self._delta_folder = folder.with_name(f"{folder.name}-delta")
        self._delta: TantivyEngine | None = None

    def _open_delta(self) -> TantivyEngine:
        if self._delta is None:
            self._delta = TantivyEngine(self._delta_folder, writable=self._writable, delta=True)
        return self._delta

    def _find_delta(self) -> TantivyEngine | None:
        """Return the delta; None for a reader if no version with a delta has written the index."""
        exists = self._delta or self._writable or TantivyEngine.exists(self._delta_folder)
        return self._open_delta() if exists else None

    def _engines(self) -> Sequence[TantivyEngine]:
        """Return the delta and the main engine.

        Documents move from the first to the second: in this order a search misses none.
        """
        delta = self._find_delta()
        return (self._main,) if delta is None else (delta, self._main)

    def write(self, documents: Iterable[EngineDocument]) -> None:
        """Write documents durably; replaces documents of the same number."""
        delta = self._open_delta()
        delta.write(documents)
        if delta.count() >= MAX_DELTA:
            self._main.write(delta.documents())
            delta.rewrite(())

    def delete_documents(self, numbers: Iterable[int]) -> None:
        """Delete documents durably; missing numbers are ignored."""
        numbers = list(numbers)
        for engine in self._engines():
            engine.delete_documents(numbers)

    def rewrite(self, documents: Iterable[EngineDocument]) -> None:
        """Replace all documents by these, and delete the files of the former ones."""
        self._main.rewrite(documents)
        self._open_delta().rewrite(())

    def search(
        self, terms: Mapping[str, float], limit: int, filters: Filters, prefix: str = ""
    ) -> list[tuple[int, float]]:
        """Return (number, score) of the best documents with any of the terms, best first.

        prefix: see `LexicalSearch`.
        """
        delta = self._find_delta()
        if delta is None or not delta.count():
            return self._main.search(terms, limit, filters, prefix)
        idf = self._main.idf if self._main.count() else None
        recent = delta.search(terms, limit, filters, prefix, idf)
        found = {**dict(self._main.search(terms, limit, filters, prefix)), **dict(recent)}
        return sorted(found.items(), key=lambda hit: -hit[1])[:limit]

    def numbers(self) -> set[int]:
        """Return the number of every document."""
        return set().union(*(engine.numbers() for engine in self._engines()))

    def missing_numbers(self, numbers: Iterable[int]) -> list[int]:
        """Return the given numbers that no document has."""
        for engine in self._engines():
            numbers = engine.missing_numbers(numbers)
        return list(numbers)

    def close(self) -> None:
        """Wait for merges and release the writer locks."""
        for engine in self._engines():
            engine.close()
