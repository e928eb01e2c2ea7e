"""Protocols of search: SearchIndex, Encoder and Reranker, and the data they exchange.

Every implementation passes the contract suite under `tests/contract`. The protocols fit an
embedded engine (tantivy and SQLite) as well as Elasticsearch: documents are written once under
`skill_id@seq`, the index does not know which revision is published, callers compute exact scores
from forward records, and no call needs a transaction across stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from skills.record import ParsedSkill, RevisionKey

TEXT_FIELDS = ("name", "description", "headings", "prose", "code")
"""The token fields of a skill's own text."""

PREFIX_FIELDS = ("name", "description")
"""The fields in which a `LexicalSearch` finds terms by their beginning."""

FIELDS = (*TEXT_FIELDS, "completed")
"""All token fields, in the order of every per-field array.

`completed` holds what a language model wrote about a skill; without one it is empty.
"""

FILTER_NAMES = ("source", "licence", "language", "tool")
"""The fields of `Filters`, in order."""

Vector = npt.NDArray[np.float32]
TermIds = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Filters:
    """Values a hit must have; several values of one filter are alternatives, () is no filter."""

    source: tuple[str, ...] = ()
    licence: tuple[str, ...] = ()
    language: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletedTerms:
    """The terms that one stage of a language model wrote about a revision.

    origin: see `Completion.origin`. terms: sorted 64-bit term hashes, shape (n,). counts: uint8,
    (n,). length: in words.
    """

    origin: str
    terms: TermIds
    counts: npt.NDArray[np.uint8]
    length: float


@dataclass(frozen=True, slots=True)
class ForwardRecord:
    """The term counts of one revision, from which exact scores are computed.

    terms: sorted 64-bit term hashes, shape (n,). counts: shape (n, fields), uint8; a term counts
    at most 255 times in a field.
    bigrams: sorted hashes of adjacent token pairs, shape (m,); bigram_weights: float32, (m,).
    lengths: words per field, float32, (fields,).
    examples: sorted hashes of the terms of prompts that the skill gives as examples, (e,).
    excluded: of each use that the skill excludes, the sorted hashes of its terms.
    completed: what a language model wrote, by origin; not in use. As stored, `fields` are
    TEXT_FIELDS; `search.completed_terms.use_completed` adds the field `completed` from there.
    """

    terms: TermIds
    counts: npt.NDArray[np.uint8]
    bigrams: TermIds
    bigram_weights: Vector
    lengths: Vector
    completed: tuple[CompletedTerms, ...] = ()
    examples: TermIds = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    excluded: tuple[TermIds, ...] = ()


@dataclass(frozen=True, slots=True)
class PassageTerms:
    """Term counts of every passage of one revision, in compressed sparse rows.

    offsets: int32, (passages + 1,); terms: uint64; counts: uint16, both (offsets[-1],).
    """

    offsets: npt.NDArray[np.int32]
    terms: TermIds
    counts: npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class SkillDocument:
    """Everything that the index stores of one revision, apart from its section vectors.

    fields: the token stream of each of FIELDS; that of `completed` is tagged by origin
    (`search.completed_terms.tag_tokens`), so that a search finds the terms of one. vectors:
    float32 (2, dimension): name + description, and head; None while they are not computed.
    section_hashes: one text hash per section, the keys of its vectors.
    """

    key: RevisionKey
    content_hash: str
    parsed: ParsedSkill
    fields: tuple[tuple[str, ...], ...]
    forward: ForwardRecord
    passage_terms: PassageTerms
    vectors: Vector | None
    section_hashes: tuple[bytes, ...]
    filters: Filters


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """One revision as read back from the index, to select passages, show it or reindex it."""

    key: RevisionKey
    content_hash: str
    parsed: ParsedSkill
    passage_terms: PassageTerms
    section_hashes: tuple[bytes, ...]
    filters: Filters = field(default_factory=Filters)


class Hit(NamedTuple):
    """A revision found by a search. score: BM25 of the engine, or the cosine."""

    key: RevisionKey
    score: float


@dataclass(frozen=True, slots=True)
class LexicalSearch:
    """A search for the best `limit` revisions by BM25 of each of TEXT_FIELDS.

    terms: index terms (`search.text.tokens`) with their query weights; a hit has any of them.
    completed: searches the field `completed` alone; `terms` are tagged by
    `search.completed_terms.tag_terms`. prefix: an unfinished word, lower-case letters and digits; a
    hit may also have a term that begins with it in its name or description.
    """

    terms: Mapping[str, float]
    limit: int
    filters: Filters
    completed: bool = False
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """A search for the `limit` revisions nearest by cosine; only cosines above 0.

    vector: float32 (dimension,), of unit length. vector_field: skill vector that is compared, 0
    for name + description, 1 for the head. Revisions with a zero vector are never found.
    """

    vector: Vector
    vector_field: int
    limit: int
    filters: Filters


@dataclass(frozen=True, slots=True)
class SectionSearch:
    """A search for the skills with the sections nearest to a vector.

    vector: float32 (dimension,), of unit length. limit: number of skills; several revisions
    of a skill count as one.
    """

    vector: Vector
    limit: int
    filters: Filters


@dataclass(frozen=True, slots=True)
class FilterSearch:
    """A search for any `limit` revisions that pass the filters."""

    limit: int
    filters: Filters


Search = LexicalSearch | VectorSearch | SectionSearch | FilterSearch


class SearchIndex(Protocol):
    """Store of write-once documents with lexical and vector search. Threads may share it.

    Every method raises TransientError when the store is busy, full or unreachable, and
    PermanentError when it is damaged, was opened for reading only, or was made with another model
    (MisconfiguredError on a server). Keys and hashes may repeat in an argument; a result has each
    once.
    """

    def add(self, documents: Sequence[SkillDocument]) -> None:
        """Write documents durably; a document whose key exists already is not changed.

        When this returns, the searches of this process find the documents, and they survive a
        kill.
        """
        ...

    def search_many(self, searches: Sequence[Search]) -> list[list[Hit]]:
        """Return the hits of each search, best first, in order; a remote index takes one round
        trip.

        A SectionSearch returns revisions of at most `limit` skills by the best cosine of any of
        their sections, nearest first, only cosines above 0. Its scores are exact up to the
        quantisation of vectors, but a far hit may be missed. It finds vectors that
        `save_section_vectors` stored, on a server after a moment.
        """
        ...

    def get_forward_records(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        """Return forward records; a key without a document is left out."""
        ...

    def get_skill_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return skill vectors, each float32 (2, dimension); a key without them is left out.

        They may have been rounded to half precision.
        """
        ...

    def get_skill_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, tuple[float, float]]:
        """Return the cosines of a unit vector, (dimension,), with both skill vectors; a key without
        them is left out. The cosine with a zero vector is 0.
        """
        ...

    def load_skill_vectors(self, keys: Sequence[RevisionKey]) -> None:
        """Read skill vectors into memory before queries need them, as many as have room there.

        Where they are mapped from files, nothing is read.
        """
        ...

    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
        """Return revisions as stored; a key without a document is left out."""
        ...

    def save_skill_vectors(self, vectors: Mapping[RevisionKey, Vector]) -> None:
        """Store the skill vectors, each float32 (2, dimension), of revisions that were added
        without them; idempotent.

        Searches find them at once, on a server a moment later. Without a document under a key
        nothing is stored.
        """
        ...

    def save_section_vectors(
        self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector
    ) -> None:
        """Store the vectors of all sections of a revision; idempotent.

        hashes: text hashes of the sections. vectors: float32 (len(hashes), dimension); they may
        be quantised to int8. Without a document under `key` nothing is stored.
        """
        ...

    def get_section_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return section vectors, each float32 (sections, dimension).

        A revision is left out until the vectors of all its sections are stored; vectors that
        were stored for the same texts of another revision may be used.
        """
        ...

    def get_section_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, float]:
        """Return the best cosine of any section of each revision, from -1 to 1.

        vector: float32 (dimension,), of unit length. A revision whose section vectors are not
        stored, or were stored a moment ago, is left out; so is one without sections.
        """
        ...

    def get_cached_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return the known vectors (dimension,) by text hash, of skills and sections alike.

        A cache: recent writes may be missing, and vectors of sections may be quantised.
        """
        ...

    def complete_keys(self, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        """Return the given keys whose document is complete and found by searches."""
        ...

    def max_seq(self) -> int:
        """Return the highest seq of any revision, published or not; 0 for an empty index."""
        ...

    def list_keys(self) -> list[RevisionKey]:
        """Return every revision that searches can find, published or not."""
        ...

    def partial_keys(self) -> list[RevisionKey]:
        """Return revisions that an interrupted `add` or `delete` left incomplete.

        Searches do not find them and `delete` removes them. A revision that another process is
        writing at the moment may be among them.
        """
        ...

    def delete(self, keys: Sequence[RevisionKey]) -> None:
        """Delete documents, and vectors that no other revision uses; missing keys are ignored."""
        ...

    def overwrite_deleted(self) -> None:
        """Make the content of deleted documents unreadable, within the means of a client of the
        store.

        Takes time in proportion to the index; searches go on meanwhile.
        """
        ...

    def close(self) -> None:
        """Release files, connections and threads."""
        ...


class Encoder(Protocol):
    """Encodes queries and texts of skills as unit vectors. Threads may share it."""

    @property
    def model(self) -> str:
        """Name, precision, version and all else that changes the vectors of skills: part of every
        index name and text hash."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """Languages the model was trained on (`en`, `zh`); cosines of other languages are not
        used."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of queries, float32 (len(texts), dimension), in their order."""
        ...

    def encode_texts(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
        """Return unit vectors of texts of skills, float32 (len(texts), dimension), in their order.

        before_batch: called before each batch, so that the caller can yield to other work.
        """
        ...


class Reranker(Protocol):
    """Scores the relevance of texts to a query. Threads may share it."""

    @property
    def model(self) -> str:
        """Name, precision and version."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """Languages the model was trained on (`en`, `zh`); other languages are not reranked."""
        ...

    def score(self, query: str, texts: Sequence[str]) -> Vector:
        """Return the relevance of each text, float32 (len(texts),), in one batch.

        Higher is better; there is no fixed scale. Text beyond the model's maximum length is
        ignored. Texts of similar length make the fastest batches.
        """
        ...
