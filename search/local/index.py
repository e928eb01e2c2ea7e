"""Embedded search index: tantivy for terms, SQLite for everything else, numpy for vectors.

A revision is written to SQLite first and to tantivy second. Completions by a language model have a
tantivy engine of their own. A kill between the two writes leaves a row that tantivy lacks; adding
the revision again or opening the index for writing repairs it. Deletes run in the opposite order,
so that a deletion that failed can be repeated: it finds the numbers of the rows again.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from typing_extensions import override

from search.blob_codec import (
    unpack_filters,
    unpack_forward,
    unpack_hashes,
    unpack_passage_terms,
)
from search.local.completed_engine import CompletedEngine
from search.local.engine_documents import OWN_TEXT, read_documents
from search.local.forward_pack_follower import RowKeys
from search.local.local_records import LocalRecords
from search.local.main_delta_engine import MainDeltaEngine
from search.local.packs.column_pack import PackWriter
from search.local.packs.forward_pack import forward_format
from search.local.packs.section_pack import section_format
from search.local.packs.vector_pack import vector_format
from search.local.revision_store import RevisionStore
from search.local.section_matrix import SectionMatrix
from search.local.tantivy_engine import EngineDocument
from search.local.vector_matrix import VectorMatrix
from search.protocol import (
    FilterSearch,
    ForwardRecord,
    Hit,
    Search,
    SearchIndex,
    SectionSearch,
    SkillDocument,
    StoredRevision,
    Vector,
    VectorSearch,
)
from search.skill_analysis import ANALYSIS_VERSION
from skills import record_codec
from skills.record import RevisionKey

STORAGE_VERSION = 1
"""Incremented when indexes of earlier versions can no longer be read."""

SCHEMA = f"{STORAGE_VERSION}.{ANALYSIS_VERSION}"
"""Version of storage and of the analysis of skills; an index of another schema is replaced."""

_MAX_UNPACKED = 1_000
"""Maximum rows that a pack may lack; every process that answers queries reads these itself."""

_MIN_PACKED = 100
"""Minimum rows to pack when the index is closed; fewer rows are not worth writing files."""


def index_identity(model: str, dimension: int, schema: str = SCHEMA) -> dict[str, str]:
    """Return the identity of an index, as stored with it: schema, model and dimension."""
    return {"schema": schema, "model": model, "dimension": str(dimension)}


class LocalSearchIndex(SearchIndex):
    """A `SearchIndex` in one folder, for one writing process and any number of readers.

    Raises PermanentError for an index that was made with another `model`, `dimension` or `schema`.
    Threads may search and write at the same time; writes are serialised. With `writable` false
    nothing is created or locked, and each search sees the last commit of the writing process.
    """

    def __init__(
        self, folder: Path, model: str, dimension: int, *, writable: bool, schema: str = SCHEMA
    ) -> None:
        identity = index_identity(model, dimension, schema)
        self._dimension = dimension
        self._writable = writable
        self._write_lock = threading.Lock()
        self._store = RevisionStore(folder / "revisions.sqlite", identity, writable=writable)
        self._engine = MainDeltaEngine(folder / "terms", writable=writable)
        self._completed = CompletedEngine(folder / "completed", self._store, writable=writable)
        self._packs = folder / "packs"
        self._keys = RowKeys(self._store, self._packs)
        self._matrix = VectorMatrix(self._store, self._packs, dimension)
        self._sections = SectionMatrix(self._store, self._packs, dimension)
        self._forward_pack = PackWriter(self._store, self._packs, forward_format())
        self._vector_pack = PackWriter(self._store, self._packs, vector_format(dimension))
        self._section_pack = PackWriter(self._store, self._packs, section_format(dimension))
        if writable:
            self._repair()
            self._write_packs(_MAX_UNPACKED)

    def _write_packs(self, min_rows: int) -> None:
        """Write the packs that lack at least `min_rows` rows."""
        self._forward_pack.write_if_due(min_rows)
        self._vector_pack.write_if_due(min_rows)
        self._section_pack.write_if_due(min_rows)

    def _repair(self) -> None:
        """Make the lexical engine hold exactly the revisions that have a row."""
        rows = self._store.keys()
        indexed = self._engine.numbers()
        stray = indexed - rows.keys()
        if stray:
            self._engine.delete_documents(stray)
        self._restore({number: rows[number] for number in sorted(rows.keys() - indexed)})
        self._completed.repair()

    def _restore(self, lost: Mapping[int, RevisionKey]) -> None:
        """Write rows to the engine that it lacks because of a kill or a full disk."""
        for documents in read_documents(self._store, lost, OWN_TEXT):
            self._engine.write(documents)

    # -- writing

    @override
    def add(self, documents: Sequence[SkillDocument]) -> None:
        if not documents:
            return
        with self._write_lock:
            numbers = self._store.insert(documents)
            fresh = [
                EngineDocument(number, document.fields[OWN_TEXT], document.filters)
                for number, document in zip(numbers, documents, strict=True)
                if number is not None
            ]
            # First, so that every revision that the other engine finds is complete.
            self._completed.add(numbers, documents)
            if fresh:
                self._engine.write(fresh)
            if len(fresh) < len(documents):
                self._complete([document.key for document in documents])
            self._write_packs(_MAX_UNPACKED)

    def _complete(self, keys: Sequence[RevisionKey]) -> None:
        """Write to the engine the given revisions that it lacks and the store has."""
        rows = {number: key for key, number in self._store.row_numbers(keys).items()}
        self._restore({number: rows[number] for number in self._engine.missing_numbers(rows)})

    @override
    def save_skill_vectors(self, vectors: Mapping[RevisionKey, Vector]) -> None:
        self._store.put_skill_vectors(vectors)
        with self._write_lock:
            self._vector_pack.write_if_due(_MAX_UNPACKED)

    @override
    def save_section_vectors(
        self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector
    ) -> None:
        self._store.put_vectors(key, hashes, vectors)
        with self._write_lock:
            self._section_pack.write_if_due(_MAX_UNPACKED)

    @override
    def delete(self, keys: Sequence[RevisionKey]) -> None:
        with self._write_lock:
            numbers = list(self._store.row_numbers(keys).values())
            if numbers:
                self._engine.delete_documents(numbers)
                self._completed.delete(numbers)
                self._store.delete(numbers)

    @override
    def overwrite_deleted(self) -> None:
        """Rewrite all files that repeat rows, then the rows. The lexical engines cannot merge their
        files on demand, so all revisions are analysed again."""
        with self._write_lock:
            documents = read_documents(self._store, self._store.keys(), OWN_TEXT)
            self._engine.rewrite(chain.from_iterable(documents))
            self._completed.rewrite()
            for pack in (self._forward_pack, self._vector_pack, self._section_pack):
                pack.rewrite()
            self._store.overwrite_deleted()

    # -- searching

    def _to_hits(self, found: Sequence[tuple[int, float]]) -> list[Hit]:
        keys = self._keys.find([number for number, _ in found])
        return [Hit(keys[number], score) for number, score in found if number in keys]

    @override
    def search_many(self, searches: Sequence[Search]) -> list[list[Hit]]:
        return [self._search(one) for one in searches]

    def _search(self, one: Search) -> list[Hit]:
        if isinstance(one, VectorSearch):
            self._matrix.refresh()
            nearest = self._matrix.find_nearest(
                one.vector, one.vector_field, one.limit, one.filters
            )
            return [Hit(*found) for found in nearest]
        if isinstance(one, SectionSearch):
            self._sections.refresh()
            return [
                Hit(*found)
                for found in self._sections.find_nearest(one.vector, one.limit, one.filters)
            ]
        if isinstance(one, FilterSearch):
            return self._to_hits(self._engine.search_filters(one.limit, one.filters))
        if one.completed:
            return self._to_hits(self._completed.search(one.terms, one.limit, one.filters))
        found = self._engine.search(one.terms, one.limit, one.filters, one.prefix)
        return self._to_hits(found)

    # -- reading

    @override
    def get_forward_records(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        rows = self._store.columns(keys, ("forward",))
        return {key: unpack_forward(blob) for key, (blob,) in rows.items()}

    def get_identity(self) -> str:
        """Return the unique id of this index."""
        return self._store.identity()

    def open_records(
        self, origins: Collection[str] = (), keep_seconds: float = 0.0
    ) -> LocalRecords:
        """Return the forward records as queries read them, with the completions of `origins`.

        keep_seconds: time for which superseded records stay readable after their deletion.
        """
        return LocalRecords(self._store, self._packs, origins, keep_seconds)

    @override
    def get_skill_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        self._matrix.refresh()
        return self._matrix.vectors(keys)

    @override
    def get_skill_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, tuple[float, float]]:
        self._matrix.refresh()
        return self._matrix.cosines(keys, vector)

    @override
    def load_skill_vectors(self, keys: Sequence[RevisionKey]) -> None:
        del keys  # the pack is mapped

    @override
    def get_section_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        self._sections.refresh()
        found = self._sections.vectors(keys)
        rows = self._store.columns([key for key in keys if key not in found], ("section_hashes",))
        without = np.empty((0, self._dimension), dtype=np.float32)
        return found | {key: without for key, (hashes,) in rows.items() if not hashes}

    @override
    def get_section_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, float]:
        self._sections.refresh()
        return self._sections.best_cosines(keys, vector)

    @override
    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
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

    @override
    def get_cached_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        return self._store.vectors(hashes)

    @override
    def complete_keys(self, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        return set(self._store.row_numbers(keys))

    @override
    def max_seq(self) -> int:
        return self._store.max_seq()

    @override
    def list_keys(self) -> list[RevisionKey]:
        return list(self._store.keys().values())

    @override
    def partial_keys(self) -> list[RevisionKey]:
        """Return an empty list: the next writer to open the index completes interrupted writes."""
        return []

    @override
    def close(self) -> None:
        with self._write_lock:
            writable, self._writable = self._writable, False
            try:
                if writable:  # not when it is closed again
                    self._write_packs(_MIN_PACKED)
            finally:
                self._engine.close()
                self._completed.close()
                self._store.close()
