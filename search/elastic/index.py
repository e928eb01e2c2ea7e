"""Search index of the distributed deployment: revisions in write-once indices, with caches."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from typing_extensions import override

from config.errors import PermanentError, SkillbusError
from config.server_settings import ServerSettings
from search.blob_codec import unpack_filters
from search.elastic.candidate_search import search_candidates, search_section_cosines
from search.elastic.connection import BulkOperation, ElasticsearchConnection, MissingIndexError
from search.elastic.document_codec import (
    REVISION_FIELDS,
    decode_blob,
    decode_forward_record,
    decode_revision,
    document_id,
    forward_record,
    revision_record,
    sections_record,
    skill_record,
    unpack_sections,
    vectors_record,
)
from search.elastic.document_reader import DocumentReader
from search.elastic.index_sets import (
    INDEX_KINDS,
    SCHEMA,
    IndexIdentity,
    IndexSet,
    IndexSets,
)
from search.elastic.merging import merge_away_deleted
from search.elastic.vector_cache import VectorCache
from search.elastic.vector_reader import read_skill_vectors, read_vectors_by_hash
from search.protocol import (
    ForwardRecord,
    Hit,
    Search,
    SearchIndex,
    SkillDocument,
    StoredRevision,
    Vector,
)
from search.skill_analysis import skill_text_hashes
from skills.batches import batches
from skills.lru_cache import LRUCache
from skills.record import RevisionKey

VECTOR_CACHE_BYTES = 1024 * 1024 * 1024
"""Size of the cache of skill vectors: 699,050 skills with 384 dimensions. Memory is allocated as
vectors are read. A query reads vectors that do not fit from the server: 140 ms for 1,900 skills."""
REVISION_CACHE_BYTES = 64 * 1024 * 1024
SECTION_CACHE_BYTES = 64 * 1024 * 1024
_LOAD_BATCH = 2_000

_REQUIRED = ("skills", "revisions", "forward")
"""Kinds of index that have a document of each complete revision; the others have its vectors."""

_SEARCHED = ("skills", "vectors", "sections")
"""Kinds of index that searches read."""

_PARSED_SIZE_FACTOR = 12
"""Size of a parsed skill in memory over that of its encoded blob, roughly."""


class ElasticsearchIndex(SearchIndex):
    """A `SearchIndex` on a server, for any number of writing and reading processes.

    The first call opens the live index set; if there is none and `writable` is set, it creates
    one. It raises MisconfiguredError for a set of another `model`, `dimension` or schema.

    index_set: the set to use instead of the live one, for a reindex. caching: False keeps nothing
    in memory, and skill vectors are not rounded to half precision.

    Threads may share it, and a forked child makes its own connection.
    """

    def __init__(
        self,
        servers: ServerSettings,
        model: str,
        dimension: int,
        *,
        writable: bool,
        index_set: IndexSet | None = None,
        caching: bool = True,
    ) -> None:
        self._identity = IndexIdentity(SCHEMA, model, dimension)
        self._writable = writable
        self._given = index_set
        self._connection = ElasticsearchConnection(servers)
        self._reader = DocumentReader(self._connection)
        self._sets = IndexSets(self._connection, servers)
        self._opened: IndexSet | None = index_set
        self._opening = threading.Lock()
        self._vectors = VectorCache(dimension, VECTOR_CACHE_BYTES) if caching else None
        self._revisions = LRUCache[RevisionKey, StoredRevision](REVISION_CACHE_BYTES * caching)
        self._sections = LRUCache[RevisionKey, bytes](SECTION_CACHE_BYTES * caching)

    def ensure(self) -> IndexSet:
        """Open or create the index set; safe when many processes start at once.

        Raises TransientError when the server is unreachable, and MisconfiguredError for a set of
        another model or unusable settings.
        """
        with self._opening:
            if self._opened is None:
                opener = self._sets.ensure if self._writable else self._sets.open
                self._opened = opener(self._identity)
            return self._opened

    @contextmanager
    def _use_set(self) -> Iterator[IndexSet]:
        """Yield the index set; if one of its indices was deleted, the next call opens it again."""
        index_set = self.ensure()
        try:
            yield index_set
        except MissingIndexError:
            self._opened = self._given
            raise

    @contextmanager
    def _write_set(self) -> Iterator[IndexSet]:
        if not self._writable:
            raise PermanentError("this search index was opened for reading only")
        with self._use_set() as index_set:
            yield index_set

    # -- writing

    @override
    def add(self, documents: Sequence[SkillDocument]) -> None:
        if not documents:
            return
        with self._write_set() as index_set:
            read_by_key, vectors, searchable = [], [], []
            for document in documents:
                key = document.key
                read_by_key += [
                    _create(index_set, "revisions", key, revision_record(document)),
                    _create(index_set, "forward", key, forward_record(document)),
                ]
                if document.vectors is not None:
                    vectors.append(self._create_vectors(index_set, document, document.vectors))
                searchable.append(_create(index_set, "skills", key, skill_record(document)))
            _, refused = self._connection.bulk_unless_refused(read_by_key)
            # `skills` is written last, so that every document that a search finds is complete.
            for kind, written in (("vectors", vectors), ("skills", searchable)):
                accepted = [one for one in written if one.id not in refused]
                refused |= self._write_searchable(index_set, kind, accepted)
            for error in refused.values():
                raise error

    def _write_searchable(
        self, index_set: IndexSet, kind: str, operations: Sequence[BulkOperation]
    ) -> dict[str, SkillbusError]:
        """Write documents and wait until searches find them; returns the errors of those that the
        server will never accept, by document id."""
        if not operations:
            return {}
        existed, refused = self._connection.bulk_unless_refused(operations, wait=True)
        if existed:
            # `wait` does not cover documents that another process wrote a moment ago.
            self._refresh(index_set, [kind])
        return refused

    def _refresh(self, index_set: IndexSet, kinds: Sequence[str]) -> None:
        with self._connection.translate_errors() as client:
            client.indices.refresh(index=[index_set.index_name(kind) for kind in kinds])

    def _create_vectors(
        self, index_set: IndexSet, revision: SkillDocument | StoredRevision, vectors: Vector
    ) -> BulkOperation:
        hashes = skill_text_hashes(self._identity.model, revision.parsed)
        record = vectors_record(revision.key, hashes, vectors, revision.filters)
        return _create(index_set, "vectors", revision.key, record)

    @override
    def save_skill_vectors(self, vectors: Mapping[RevisionKey, Vector]) -> None:
        with self._write_set() as index_set:
            revisions = self.get_revisions(list(vectors))
            self._connection.bulk(
                [self._create_vectors(index_set, revisions[key], vectors[key]) for key in revisions]
            )
            self._delete_orphans(index_set, "vectors", list(revisions))

    def _delete_orphans(self, index_set: IndexSet, kind: str, keys: Sequence[RevisionKey]) -> None:
        """Delete vectors that were written while `delete`, which removes `skills` first, ran."""
        left = self._reader.existing_keys(index_set.index_name("skills"), keys)
        if gone := [key for key in keys if key not in left]:
            self._connection.bulk([_delete(index_set, kind, key) for key in gone])

    @override
    def save_section_vectors(
        self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector
    ) -> None:
        with self._write_set() as index_set:
            stored = self._reader.get_documents(
                index_set.index_name("revisions"), [key], ["filters"]
            )
            filters = [unpack_filters(str(source["filters"])) for _, source in stored]
            if not filters:
                return
            record = sections_record(key, hashes, vectors, filters[0])
            self._connection.bulk([_create(index_set, "sections", key, record)])
            self._delete_orphans(index_set, "sections", [key])

    @override
    def delete(self, keys: Sequence[RevisionKey]) -> None:
        if not keys:
            return
        with self._write_set() as index_set:
            # `skills` first: a process that stores vectors meanwhile sees that the skill is gone.
            for kinds in (("skills",), INDEX_KINDS[1:]):
                self._connection.bulk(
                    [_delete(index_set, kind, key) for kind in kinds for key in keys]
                )
            self._refresh(index_set, _SEARCHED)
        if self._vectors is not None:
            self._vectors.evict(keys)
        self._revisions.evict(keys)
        self._sections.evict(keys)

    @override
    def overwrite_deleted(self) -> None:
        """Merge all segments into one without deleted documents; waits up to 90 seconds first,
        until no replica needs them."""
        with self._write_set() as index_set:
            names = [index_set.index_name(kind) for kind in INDEX_KINDS]
            merge_away_deleted(self._connection, names)

    # -- searching

    @override
    def search_many(self, searches: Sequence[Search]) -> list[list[Hit]]:
        with self._use_set() as index_set:
            return search_candidates(self._reader, index_set, searches)

    @override
    def get_section_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, float]:
        with self._use_set() as index_set:
            return search_section_cosines(self._reader, index_set, keys, vector)

    # -- reading

    @override
    def get_forward_records(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        with self._use_set() as index_set:
            sources = self._reader.get_documents(index_set.index_name("forward"), keys, ["forward"])
            return {key: decode_forward_record(source) for key, source in sources}

    @override
    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
        found = self._revisions.get(keys)
        missing = [key for key in keys if key not in found]
        with self._use_set() as index_set:
            index = index_set.index_name("revisions")
            for key, source in self._reader.get_documents(index, missing, REVISION_FIELDS):
                found[key] = decode_revision(key, source)
                weight = _PARSED_SIZE_FACTOR * len(source["parsed"]) + len(source["passage_terms"])
                self._revisions.put(key, found[key], weight)
        return {key: found[key] for key in keys if key in found}

    @override
    def get_skill_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        if self._vectors is None:
            return self._read_skill_vectors(keys)
        found = self._vectors.get(keys)
        missing = [key for key in keys if key not in found]
        if missing:
            fresh = {
                key: vectors.astype(np.float16).astype(np.float32)
                for key, vectors in self._read_skill_vectors(missing).items()
            }
            self._vectors.put(fresh)
            found |= fresh
        return found

    @override
    def get_skill_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, tuple[float, float]]:
        found = {} if self._vectors is None else self._vectors.cosines(keys, vector)
        missing = [key for key in keys if key not in found]
        if missing and (fresh := self.get_skill_vectors(missing)):
            pairs = np.vecdot(np.stack(list(fresh.values())), vector).tolist()
            found |= dict(zip(fresh, map(tuple, pairs), strict=True))
        return found

    @override
    def load_skill_vectors(self, keys: Sequence[RevisionKey]) -> None:
        if self._vectors is not None:
            for batch in batches(keys[: self._vectors.rows], _LOAD_BATCH):
                self.get_skill_vectors(batch)

    def _read_skill_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        with self._use_set() as index_set:
            return read_skill_vectors(self._reader, index_set, keys)

    @override
    def get_section_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        blobs = self._sections.get(keys)
        missing = [key for key in keys if key not in blobs]
        with self._use_set() as index_set:
            index = index_set.index_name("sections")
            for key, source in self._reader.get_documents(index, missing, ["vectors"]):
                blobs[key] = decode_blob(source["vectors"])
                self._sections.put(key, blobs[key], len(blobs[key]))
        dimension = self._identity.dimension
        return {key: unpack_sections(blobs[key], dimension)[1] for key in keys if key in blobs}

    @override
    def get_cached_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        with self._use_set() as index_set:
            return read_vectors_by_hash(self._reader, index_set, hashes)

    # -- for the reconciler

    @override
    def max_seq(self) -> int:
        with self._use_set() as index_set:
            return self._reader.max_seq(index_set.index_name("skills"))

    @override
    def list_keys(self) -> list[RevisionKey]:
        with self._use_set() as index_set:
            return list(self._reader.iterate_keys(index_set.index_name("skills")))

    @override
    def complete_keys(self, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        found = set(keys)
        with self._use_set() as index_set:
            for kind in _REQUIRED:
                found &= self._reader.existing_keys(index_set.index_name(kind), sorted(found))
        return found

    @override
    def partial_keys(self) -> list[RevisionKey]:
        with self._use_set() as index_set:
            self._refresh(index_set, _REQUIRED)
            skills, *others = (index_set.index_name(kind) for kind in _REQUIRED)
            complete = self._reader.count(skills)
            if all(self._reader.count(other) <= complete for other in others):
                return []
            parts = {key for other in others for key in self._reader.iterate_keys(other)}
            return sorted(parts.difference(self._reader.iterate_keys(skills)))

    @override
    def close(self) -> None:
        self._connection.close()


def _create(index_set: IndexSet, kind: str, key: RevisionKey, record: bytes) -> BulkOperation:
    return BulkOperation(index_set.write_alias(kind), document_id(key), record, str(key))


def _delete(index_set: IndexSet, kind: str, key: RevisionKey) -> BulkOperation:
    return BulkOperation(index_set.write_alias(kind), document_id(key), None, str(key))
