"""The search index in Elasticsearch: four write-once indices, and what a process keeps of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from config.errors import PermanentError
from config.settings import ServerSettings
from search.elastic.caches import LRUCache, VectorCache
from search.elastic.candidate_search import (
    VECTOR_BLOB,
    hashes_query,
    ids_query,
    read_hits,
    search_body,
)
from search.elastic.connection import BulkOperation, ElasticsearchConnection, MissingIndexError
from search.elastic.document_codec import (
    REVISION_FIELDS,
    decode_blob,
    decode_forward_record,
    decode_key,
    decode_revision,
    decode_skill_vectors,
    document_id,
    forward_record,
    revision_record,
    sections_record,
    skill_record,
    unpack_sections,
)
from search.elastic.document_reader import (
    READ_BATCH,
    DocumentReader,
    batches,
    hit_fields,
    hit_sources,
)
from search.elastic.index_sets import SCHEMA, IndexIdentity, IndexSet, IndexSets
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
from search.skill_analysis import skill_text_hashes
from skills.record import RevisionKey

VECTOR_CACHE_BYTES = 128 * 1024 * 1024
REVISION_CACHE_BYTES = 64 * 1024 * 1024
SECTION_CACHE_BYTES = 64 * 1024 * 1024

_PAGES_AT_ONCE = 4
_PARSED_SWELL = 12
_HASH_ROUNDS = 4
_OPENED_FOR_READING = "this search index was opened for reading only"


class ElasticsearchIndex:
    """A `SearchIndex` on a server, for any number of writing and reading processes.

    Nothing is asked of the server before the first call; then the live index set is opened, and
    made where `writable` is set and there is none. A set of another `model`, `dimension` or schema
    raises UsageError. `given` is a set to use instead of the live one, as a reindex does. Without
    `caching` nothing read is kept, and skill vectors come at full precision.
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
        self._revisions: LRUCache[StoredRevision] = LRUCache(REVISION_CACHE_BYTES * caching)
        self._sections: LRUCache[bytes] = LRUCache(SECTION_CACHE_BYTES * caching)

    @property
    def sets(self) -> IndexSets:
        """The index sets under the same prefix, for reindexing and health checks."""
        return self._sets

    def ensure(self) -> IndexSet:
        """The index set in use, opened or made; safe when many processes start at once.

        Raises TransientError when the server is away, UsageError for a set of another model or
        for settings that cannot be used.
        """
        with self._opening:
            if self._opened is None:
                opener = self._sets.ensure if self._writable else self._sets.open
                self._opened = opener(self._identity)
            return self._opened

    @contextmanager
    def _using(self) -> Iterator[IndexSet]:
        """The set; when an index of it turns out to be gone it is opened again next time."""
        chosen = self.ensure()
        try:
            yield chosen
        except MissingIndexError:
            self._opened = self._given
            raise

    @contextmanager
    def _writing(self) -> Iterator[IndexSet]:
        if not self._writable:
            raise PermanentError(_OPENED_FOR_READING)
        with self._using() as chosen:
            yield chosen

    # -- writing

    def add(self, documents: Sequence[SkillDocument]) -> None:
        """Write documents durably; one that exists under its key is left as it is.

        What a search finds is written last, so that whatever is found is whole.
        """
        if not documents:
            return
        with self._writing() as chosen:
            read, found = [], []
            for document in documents:
                hashes = skill_text_hashes(self._identity.model, document.parsed)
                read.append(_create(chosen, "revisions", document.key, revision_record(document)))
                read.append(_create(chosen, "forward", document.key, forward_record(document)))
                found.append(
                    _create(chosen, "skills", document.key, skill_record(document, hashes))
                )
            self._connection.bulk(read)
            if self._connection.bulk(found, wait=True):
                # Another process may have written it a moment ago: waited for nothing then.
                with self._connection.translate_errors() as client:
                    client.indices.refresh(index=chosen.index_name("skills"))

    def save_section_vectors(
        self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector
    ) -> None:
        """Store the vectors of all sections of a revision as int8; idempotent."""
        with self._writing() as chosen:
            record = sections_record(key, hashes, vectors)
            self._connection.bulk([_create(chosen, "sections", key, record)])
            # Looked at afterwards, and deleted the other way round: none stays behind.
            if not self._reader.exists(chosen.index_name("skills"), key):
                self._connection.bulk([_delete(chosen, "sections", key)])

    def delete(self, keys: Sequence[RevisionKey]) -> None:
        """Delete the documents of revisions; a missing one is success."""
        if not keys:
            return
        with self._writing() as chosen:
            self._connection.bulk([_delete(chosen, "skills", key) for key in keys], wait=True)
            others = ("revisions", "forward", "sections")
            self._connection.bulk([_delete(chosen, kind, key) for key in keys for kind in others])
        if self._vectors is not None:
            self._vectors.evict(keys)
        self._revisions.evict(keys)
        self._sections.evict(keys)

    # -- searching

    def search_lexical(self, terms: Mapping[str, float], limit: int, filters: Filters) -> list[Hit]:
        """The best revisions by per-field BM25 over any of the terms (term -> weight)."""
        return self.search_many([LexicalSearch(terms, limit, filters)])[0]

    def search_vectors(
        self, vector: Vector, vector_field: int, limit: int, filters: Filters
    ) -> list[Hit]:
        """The nearest revisions by cosine to skill vector `which` (0 name, 1 head)."""
        return self.search_many([VectorSearch(vector, vector_field, limit, filters)])[0]

    def search_many(self, searches: Sequence[LexicalSearch | VectorSearch]) -> list[list[Hit]]:
        """The hits of each search, in order, in one round trip."""
        bodies = [(place, search_body(one)) for place, one in enumerate(searches)]
        asked = [(place, body) for place, body in bodies if body is not None]
        hits: list[list[Hit]] = [[] for _ in searches]
        with self._using() as chosen:
            answers = self._reader.search(
                [(chosen.index_name("skills"), body) for _, body in asked],
                ["hits.hits._score", "hits.hits.fields"],
            )
        for (place, _), answer in zip(asked, answers, strict=True):
            hits[place] = read_hits(searches[place], answer)
        return hits

    # -- reading

    def get_forward_records(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        """Forward records; a key without a document is left out."""
        with self._using() as chosen:
            sources = self._reader.documents(chosen.index_name("forward"), keys, ["forward"])
            return {key: decode_forward_record(source) for key, source in sources}

    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
        """Revisions as stored; a key without a document is left out."""
        found = self._revisions.get(keys)
        missing = [key for key in keys if key not in found]
        with self._using() as chosen:
            index = chosen.index_name("revisions")
            for key, source in self._reader.documents(index, missing, REVISION_FIELDS):
                found[key] = decode_revision(key, source)
                weight = _PARSED_SWELL * len(source["parsed"]) + len(source["passage_terms"])
                self._revisions.put(key, found[key], weight)
        return {key: found[key] for key in keys if key in found}

    def get_skill_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Skill vectors, each (2, dimension) float32; at half precision where they are kept."""
        if self._vectors is None:
            return self._exact_vectors(keys)
        found = self._vectors.get(keys)
        missing = [key for key in keys if key not in found]
        if missing:
            fresh = {
                key: vectors.astype(np.float16).astype(np.float32)
                for key, vectors in self._exact_vectors(missing).items()
            }
            self._vectors.put(fresh)
            found |= fresh
        return found

    def _exact_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        found = {}
        with self._using() as chosen:
            for some in batches(keys, _PAGES_AT_ONCE * READ_BATCH):
                searches = [
                    (
                        chosen.index_name("skills"),
                        ids_query([document_id(key) for key in page]) | VECTOR_BLOB,
                    )
                    for page in batches(some, READ_BATCH)
                ]
                for answer in self._reader.search(searches, ["hits.hits.fields"]):
                    for fields in hit_fields(answer):
                        blob = decode_blob(fields["vectors"][0])
                        found[decode_key(fields)] = decode_skill_vectors(blob)[1]
        return found

    def get_section_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Section vectors (sections, dimension) of each revision that they were stored for."""
        blobs = self._sections.get(keys)
        missing = [key for key in keys if key not in blobs]
        with self._using() as chosen:
            index = chosen.index_name("sections")
            for key, source in self._reader.documents(index, missing, ["vectors"]):
                blobs[key] = decode_blob(source["vectors"])
                self._sections.put(key, blobs[key], len(blobs[key]))
        return {key: unpack_sections(blobs[key])[1] for key in keys if key in blobs}

    def get_cached_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """Vectors known under these text hashes: skills' exact, sections' from int8."""
        distinct = list(dict.fromkeys(hashes))
        found: dict[bytes, Vector] = {}
        with self._using() as chosen:
            for page in batches(distinct, READ_BATCH):
                found |= self._known(chosen, page)
        return found

    def _known(self, chosen: IndexSet, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        found: dict[bytes, Vector] = {}
        left = list(hashes)
        # Texts that many share fill the hits of a round; the others are found in the next.
        for _ in range(_HASH_ROUNDS):
            skills, sections = self._reader.search(
                [
                    (chosen.index_name("skills"), hashes_query(left) | VECTOR_BLOB),
                    (chosen.index_name("sections"), hashes_query(left) | {"_source": ["vectors"]}),
                ],
                ["hits.hits.fields", "hits.hits._source"],
            )
            blobs = [one["vectors"] for one in hit_sources(sections)]
            pairs = [one["vectors"][0] for one in hit_fields(skills)]
            vectors = [unpack_sections(decode_blob(blob)) for blob in blobs]
            vectors += [decode_skill_vectors(decode_blob(blob)) for blob in pairs]
            fresh = {
                text: vector
                for texts, block in vectors
                for text, vector in zip(texts, block, strict=True)
            }
            asked = left
            left = [value for value in asked if value not in fresh]
            found |= {value: fresh[value] for value in asked if value in fresh}
            if not left or left == asked or max(len(blobs), len(pairs)) < len(asked):
                break
        return found

    # -- for the reconciler

    def max_seq(self) -> int:
        """The highest seq of any revision in the index."""
        with self._using() as chosen:
            return self._reader.max_seq(chosen.index_name("skills"))

    def list_keys(self) -> list[RevisionKey]:
        """Every revision that searches can find."""
        with self._using() as chosen:
            return list(self._reader.keys(chosen.index_name("skills")))

    def complete_keys(self, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        """Those of these revisions of which every document is there."""
        found = set(keys)
        with self._using() as chosen:
            for kind in ("skills", "revisions", "forward"):
                found &= self._reader.existing_keys(chosen.index_name(kind), sorted(found))
        return found

    def partial_keys(self) -> list[RevisionKey]:
        """Revisions that a kill left half written, or half deleted."""
        with self._using() as chosen:
            skills, *others = (
                chosen.index_name(kind) for kind in ("skills", "revisions", "forward")
            )
            with self._connection.translate_errors() as client:
                client.indices.refresh(index=[skills, *others])
            whole = self._reader.count(skills)
            if all(self._reader.count(other) <= whole for other in others):
                return []
            parts = {key for other in others for key in self._reader.keys(other)}
            return sorted(parts.difference(self._reader.keys(skills)))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _create(chosen: IndexSet, kind: str, key: RevisionKey, record: bytes) -> BulkOperation:
    return BulkOperation(chosen.write_alias(kind), document_id(key), record, str(key))


def _delete(chosen: IndexSet, kind: str, key: RevisionKey) -> BulkOperation:
    return BulkOperation(chosen.write_alias(kind), document_id(key), None, str(key))
