"""Lexical engine of the embedded index in two parts: a main engine and a small delta.

After every eighth commit, tantivy merges new segments with all segments of up to 16,000 documents.
That took two fifths of the processor time of an edit, and the merge policy cannot be set from
Python. So documents are added to the delta, where merges are cheap, and move to the main engine
many at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from search.local.tantivy_engine import TEXT_BOOSTS, Collection, EngineDocument, TantivyEngine
from search.protocol import Filters

MAX_DELTA = 250
"""Number of documents of the delta at which all of them move to the main engine: 1,000 would take
5 ms of a query."""


class MainDeltaEngine:
    """A `TantivyEngine` in a folder, and one in its folder `delta` for the newest documents.

    A number is written once. Scores have the inverse document frequencies of the main engine,
    unless it is empty. The caller must serialise writes. A process that dies while documents move
    leaves them in both engines; they are found once.
    """

    def __init__(self, folder: Path, *, writable: bool) -> None:
        self._writable = writable
        self._main = TantivyEngine(folder, writable=writable)
        self._delta_folder = folder / "delta"
        self._delta: TantivyEngine | None = None

    def _open_delta(self) -> TantivyEngine:
        if self._delta is None:
            self._delta = TantivyEngine(self._delta_folder, writable=self._writable, stored=True)
        return self._delta

    def _find_delta(self) -> TantivyEngine | None:
        """Return the delta; None for a reader if no process has written one."""
        exists = self._delta or self._writable or TantivyEngine.exists(self._delta_folder)
        return self._open_delta() if exists else None

    def _engines(self) -> Sequence[TantivyEngine]:
        """Return the delta and the main engine.

        Documents move from the first to the second: in this order a search misses none.
        """
        delta = self._find_delta()
        return (self._main,) if delta is None else (delta, self._main)

    def write(self, documents: Sequence[EngineDocument]) -> None:
        """Write documents durably; a document that is there already is written again."""
        delta = self._open_delta()
        if len(documents) >= MAX_DELTA:
            self._main.write(documents)
            delta.delete_documents(document.number for document in documents)
            return
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
        collection = None
        if self._main.count():
            collection = _add_new_terms(self._main.collection(), delta.collection())
            terms = collection.select_terms(terms, TEXT_BOOSTS)
        recent = delta.search(terms, limit, filters, prefix, collection)
        found = {**dict(self._main.search(terms, limit, filters, prefix)), **dict(recent)}
        return sorted(found.items(), key=lambda hit: -hit[1])[:limit]

    def search_filters(self, limit: int, filters: Filters) -> list[tuple[int, float]]:
        """Return (number, score) of any documents that pass the filters."""
        found = [hit for engine in self._engines() for hit in engine.search_filters(limit, filters)]
        return list(dict(found).items())[:limit]

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
        with ExitStack() as stack:
            stack.callback(self._main.close)
            if self._delta is not None:
                stack.callback(self._delta.close)


def _add_new_terms(main: Collection, delta: Collection) -> Collection:
    """Return the main collection with the frequencies of terms that are new in the delta."""
    return Collection(
        main.documents,
        lambda field, term: max(main.frequency(field, term), delta.frequency(field, term)),
    )
