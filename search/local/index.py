"""The embedded search index: tantivy for terms, SQLite for everything else, numpy for vectors.

A revision is written to SQLite first and to tantivy second; a kill between the two leaves a row
that the engine does not know, which is put right by writing it again or, at the latest, when the
next writer opens. Deleting goes the same way, so a hit always has its row.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from search.blob_codec import (
    unpack_filters,
    unpack_forward,
    unpack_hashes,
    unpack_passage_terms,
)
from search.local.revision_store import RevisionStore, batches
from search.local.tantivy_engine import TantivyEngine
from search.local.vector_matrix import VectorMatrix
from search.protocol import (
    Filters,
    ForwardRecord,
    Hit,
    LexicalSearch,
    SkillDocument,
    StoredRevision,
    Vector,
    VectorSearch,
)
from search.skill_analysis import analyse_skill
from search.text.tokens import TOKENS_VERSION
from skills import record_codec
from skills.record import RevisionKey

SCHEMA_VERSION = 1
"""Raised when an index written before can no longer be read."""


class LocalSearchIndex:
    """A `SearchIndex` in one folder, for one writing process and any number of readers.

    `model` and `dimension` belong to the index: one made with others raises PermanentError.
    Threads may search and write at once; writes take turns. With `writable` false nothing is
    created or locked, and commits of the writing process show up at the next search.
    """

    def __init__(self, folder: Path, model: str, dimension: int, *, writable: bool) -> None:
        identity = {
            "schema": f"{SCHEMA_VERSION}.{TOKENS_VERSION}",
            "model": model,
            "dimension": str(dimension),
        }
        self._dimension = dimension
        self._write_lock = threading.Lock()
        self._store = RevisionStore(folder / "revisions.sqlite", identity, writable=writable)
        self._engine = TantivyEngine(folder / "terms", writable=writable)
        self._matrix = VectorMatrix(self._store, dimension)
        if writable:
            self._repair()

    def _repair(self) -> None:
        """Bring the lexical engine in line with the rows, which are the truth."""
        rows = self._store.keys()
        indexed = self._engine.numbers()
        stray = indexed - rows.keys()
        if stray:
            self._engine.delete_documents(stray)
        self._restore({number: rows[number] for number in sorted(rows.keys() - indexed)})

    def _restore(self, lost: Mapping[int, RevisionKey]) -> None:
        """Write again to the engine, from the rows, what a kill or a full disk kept from it."""
        for batch in batches(lost):
            columns = self._store.columns([lost[n] for n in batch], ("parsed", "filters"))
            self._engine.write(
                (
                    number,
                    analyse_skill(record_codec.load(columns[lost[number]][0])).fields,
                    unpack_filters(str(columns[lost[number]][1])),
                )
                for number in batch
            )

    # -- writing

    def add(self, documents: Sequence[SkillDocument]) -> None:
        """Write documents durably; one that exists under its key is left as it is."""
        if not documents:
            return
        with self._write_lock:
            numbers = self._store.insert(documents)
            fresh = [
                (number, document.fields, document.filters)
                for number, document in zip(numbers, documents, strict=True)
                if number is not None
            ]
            if fresh:
                self._engine.write(fresh)
            if len(fresh) < len(documents):
                self._complete([document.key for document in documents])

    def _complete(self, keys: Sequence[RevisionKey]) -> None:
        """Make sure that the engine has what the store has."""
        rows = {number: key for key, number in self._store.row_numbers(keys).items()}
        self._restore({number: rows[number] for number in self._engine.missing_numbers(rows)})

    def save_section_vectors(
        self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector
    ) -> None:
        """Store the vectors of a revision's sections as int8; idempotent."""
        self._store.put_vectors(key, hashes, vectors)

    def delete(self, keys: Sequence[RevisionKey]) -> None:
        """Delete documents, and vectors that nothing else uses; a missing key is success."""
        with self._write_lock:
            numbers = list(self._store.row_numbers(keys).values())
            if numbers:
                self._store.delete(numbers)
                self._engine.delete_documents(numbers)

    # -- searching

    def search_lexical(self, terms: Mapping[str, float], limit: int, filters: Filters) -> list[Hit]:
        """The best revisions by per-field BM25 over any of the terms (term -> weight)."""
        found = self._engine.search(terms, limit, filters)
        self._matrix.refresh()
        hits = ((self._matrix.get_key(number), score) for number, score in found)
        return [Hit(key, score) for key, score in hits if key is not None]

    def search_vectors(
        self, vector: Vector, vector_field: int, limit: int, filters: Filters
    ) -> list[Hit]:
        """The nearest revisions by cosine to skill vector `which` (0 name, 1 head)."""
        self._matrix.refresh()
        return [
            Hit(key, score)
            for key, score in self._matrix.find_nearest(vector, vector_field, limit, filters)
        ]

    def search_many(self, searches: Sequence[LexicalSearch | VectorSearch]) -> list[list[Hit]]:
        """The hits of each search, one after the other."""
        return [
            self.search_lexical(one.terms, one.limit, one.filters)
            if isinstance(one, LexicalSearch)
            else self.search_vectors(one.vector, one.vector_field, one.limit, one.filters)
            for one in searches
        ]

    # -- reading

    def get_forward_records(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        """Forward records; a key without a document is left out."""
        rows = self._store.columns(keys, ("forward",))
        return {key: unpack_forward(blob) for key, (blob,) in rows.items()}

    def get_skill_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Skill vectors, each (2, dimension) float32; a key without a document is left out."""
        self._matrix.refresh()
        return self._matrix.vectors(keys)

    def get_section_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Section vectors (sections, dimension) of each revision that has all of them."""
        rows = self._store.columns(keys, ("section_hashes",))
        hashes = {key: unpack_hashes(blob) for key, (blob,) in rows.items()}
        known = self._store.vectors(text for texts in hashes.values() for text in texts)
        found = {}
        for key, texts in hashes.items():
            if all(text in known for text in texts):
                found[key] = (
                    np.stack([known[text] for text in texts])
                    if texts
                    else np.empty((0, self._dimension), dtype=np.float32)
                )
        return found

    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
        """Revisions as stored; a key without a document is left out."""
        rows = self._store.columns(
            keys, ("content_hash", "parsed", "passage_terms", "section_hashes", "filters")
        )
        return {
            key: StoredRevision(
                key=key,
                content_hash=str(content_hash),
                parsed=record_codec.load(parsed),
                passage_terms=unpack_passage_terms(terms),
                section_hashes=unpack_hashes(hashes),
                filters=unpack_filters(str(filters)),
            )
            for key, (content_hash, parsed, terms, hashes, filters) in rows.items()
        }

    def get_cached_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """Vectors known under these text hashes, of skills and sections alike."""
        return self._store.vectors(hashes)

    def complete_keys(self, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        """Those of these revisions that are there: one is written whole or not at all."""
        return set(self._store.columns(keys, ("forward",)))

    def max_seq(self) -> int:
        """The highest seq of any revision in the index."""
        return self._store.max_seq()

    def list_keys(self) -> list[RevisionKey]:
        """Every revision in the index, published or not; for the reconciler."""
        return list(self._store.keys().values())

    def partial_keys(self) -> list[RevisionKey]:
        """None: what a kill left is put right when the next writer opens."""
        return []

    def close(self) -> None:
        """Release files and threads."""
        with self._write_lock:
            self._engine.close()
            self._store.close()
