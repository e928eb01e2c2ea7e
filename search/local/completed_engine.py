"""Lexical engine for texts that a language model wrote, separate from that for the skills' own
texts.

Its folder exists only once a revision with completions was written. So an index without a language
model stays as it was, and no index has to be rebuilt to get completions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from search.local.engine_documents import COMPLETED, read_documents
from search.local.revision_store import RevisionStore
from search.local.tantivy_engine import COMPLETED_BOOSTS, EngineDocument, TantivyEngine
from search.protocol import Filters, SkillDocument
from skills.record import RevisionKey


class CompletedEngine:
    """Search engine over the field `completed` of the revisions that have it, by row number.

    The caller must serialise writes. `repair` is called when an index is opened for writing.
    """

    def __init__(self, folder: Path, store: RevisionStore, *, writable: bool) -> None:
        self._folder = folder
        self._store = store
        self._writable = writable
        self._engine: TantivyEngine | None = None

    def _find(self) -> TantivyEngine | None:
        """Return the engine, None if nothing was ever written to it."""
        if self._engine is None and TantivyEngine.exists(self._folder):
            self._engine = self._open()
        return self._engine

    def _open(self) -> TantivyEngine:
        return TantivyEngine(self._folder, writable=self._writable, boosts=COMPLETED_BOOSTS)

    def repair(self) -> None:
        """Make the engine hold exactly the revisions that the store has with completions."""
        rows, engine = self._store.completed_keys(), self._find()
        indexed = engine.numbers() if engine else set()
        if engine and (stray := indexed - rows.keys()):
            engine.delete_documents(stray)
        self._restore({number: rows[number] for number in sorted(rows.keys() - indexed)})

    def rewrite(self) -> None:
        """Write the engine anew, without anything of deleted documents."""
        if (engine := self._find()) is not None:
            documents = read_documents(self._store, self._store.completed_keys(), COMPLETED)
            engine.rewrite(chain.from_iterable(documents))

    def _restore(self, lost: Mapping[int, RevisionKey]) -> None:
        for documents in read_documents(self._store, lost, COMPLETED):
            self._write(documents)

    def add(self, numbers: Sequence[int | None], documents: Sequence[SkillDocument]) -> None:
        """Write the documents that have completions, unless the engine has them already.

        numbers: the row number of each document, None for a document that the store had before.
        """
        completed = [
            (number, one)
            for number, one in zip(numbers, documents, strict=True)
            if one.forward.completed
        ]
        fresh = [
            EngineDocument(n, one.fields[COMPLETED], one.filters)
            for n, one in completed
            if n is not None
        ]
        if fresh:
            self._write(fresh)
        if old := [one.key for number, one in completed if number is None]:
            self._complete(old)

    def _complete(self, keys: Sequence[RevisionKey]) -> None:
        """Write the given revisions that the store has with completions and the engine lacks."""
        stored = self._store.completed_keys()
        rows = {n: key for key, n in self._store.row_numbers(keys).items() if n in stored}
        engine = self._find()
        lost = engine.missing_numbers(rows) if engine else list(rows)
        self._restore({number: rows[number] for number in lost})

    def _write(self, documents: Iterable[EngineDocument]) -> None:
        if self._engine is None:
            self._engine = self._open()
        self._engine.write(documents)

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete documents durably; missing numbers are ignored."""
        if (engine := self._find()) is not None:
            engine.delete_documents(numbers)

    def search(
        self, terms: Mapping[str, float], limit: int, filters: Filters
    ) -> list[tuple[int, float]]:
        """Return (number, score) of the best documents with any of the tagged terms."""
        engine = self._find()
        return engine.search(terms, limit, filters) if engine else []

    def close(self) -> None:
        """Wait for segment merges and release the writer lock."""
        if self._engine is not None:
            self._engine.close()
