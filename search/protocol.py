"""What search needs of an engine, of an encoder and of a reranker.

Every implementation passes the contract suite under `tests/contract`. The protocols fit an
embedded engine (tantivy and SQLite) as well as Elasticsearch: documents are write-once under
`skill_id@seq`, the index knows nothing of which revision is published, exact scores are computed
by the caller from forward records, and no call needs a transaction across stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from skills.record import ParsedSkill, RevisionKey

FIELDS = ("name", "description", "headings", "prose", "code")
"""The token fields, in the order of every per-field array."""

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
class ForwardRecord:
    """The term counts of one revision, from which exact scores are computed.

    terms: sorted 64-bit term hashes, shape (n,). counts: shape (n, len(FIELDS)), uint8; a term
    counts at most 255 times in a field.
    bigrams: sorted hashes of adjacent token pairs, shape (m,); bigram_weights: float32, (m,).
    lengths: tokens a field, float32, (len(FIELDS),).
    """

    terms: TermIds
    counts: npt.NDArray[np.uint8]
    bigrams: TermIds
    bigram_weights: Vector
    lengths: Vector


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
    """All that is written of one revision at the searchable stage.

    fields: the token stream of each of FIELDS. vectors: float32 (2, dimension): name +
    description, and head. section_hashes: one content hash a section, the keys of its vectors.
    """

    key: RevisionKey
    content_hash: str
    parsed: ParsedSkill
    fields: tuple[tuple[str, ...], ...]
    forward: ForwardRecord
    passage_terms: PassageTerms
    vectors: Vector
    section_hashes: tuple[bytes, ...]
    filters: Filters


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """What is read back of one revision to page and show it, or to index it anew."""

    key: RevisionKey
    content_hash: str
    parsed: ParsedSkill
    passage_terms: PassageTerms
    section_hashes: tuple[bytes, ...]
    filters: Filters = field(default_factory=Filters)


class Hit(NamedTuple):
    """A revision that the engine found, with the engine's own score."""

    key: RevisionKey
    score: float


@dataclass(frozen=True, slots=True)
class LexicalSearch:
    """What `search_lexical` takes, to be asked together with others."""

    terms: Mapping[str, float]
    limit: int
    filters: Filters


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """What `search_vectors` takes, to be asked together with others."""

    vector: Vector
    vector_field: int
    limit: int
    filters: Filters


class SearchIndex(Protocol):
    """Write-once documents, lexical candidates and nearest neighbours."""

    def add(self, documents: Sequence[SkillDocument]) -> None:
        """Write documents durably; one that exists under its key is left as it is.

        When this returns the documents are visible to `candidates` and `neighbours` of this
        process, and survive a kill. Raises TransientError when the store is busy, full or away.
        """
        ...

    def search_lexical(self, terms: Mapping[str, float], limit: int, filters: Filters) -> list[Hit]:
        """The best revisions by per-field BM25 over any of the terms (term -> weight)."""
        ...

    def search_vectors(
        self, vector: Vector, vector_field: int, limit: int, filters: Filters
    ) -> list[Hit]:
        """The nearest revisions by cosine to skill vector `which` (0 name, 1 head)."""
        ...

    def search_many(self, searches: Sequence[LexicalSearch | VectorSearch]) -> list[list[Hit]]:
        """The hits of each search, in order; one round trip where that is what costs."""
        ...

    def get_forward_records(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, ForwardRecord]:
        """Forward records; a key without a document is left out."""
        ...

    def get_skill_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Skill vectors, each (2, dimension) float32; a key without a document is left out.

        They may have been kept at half precision.
        """
        ...

    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
        """Revisions as stored; a key without a document is left out."""
        ...

    def save_section_vectors(
        self, key: RevisionKey, hashes: Sequence[bytes], vectors: Vector
    ) -> None:
        """Store the vectors of all sections of a revision, (len(hashes), dimension); idempotent.

        Those of a revision without a document are dropped.
        """
        ...

    def get_section_vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Section vectors (sections, dimension) of each revision that has all of them.

        A revision has them when they were stored for it; where texts are the same, those stored
        for another may serve.
        """
        ...

    def get_cached_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """Vectors known under these text hashes, of skills and sections alike.

        A cache: what was written a moment ago may be missing, and sections' may be quantised.
        """
        ...

    def complete_keys(self, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        """Those of these revisions that searches find and of which nothing is missing."""
        ...

    def max_seq(self) -> int:
        """The highest seq of any revision in the index, published or not; 0 without any."""
        ...

    def list_keys(self) -> list[RevisionKey]:
        """Every revision in the index, published or not; for the reconciler."""
        ...

    def partial_keys(self) -> list[RevisionKey]:
        """Revisions of which a kill left parts that no search finds; `delete` clears them away.

        One that is being written may be among them.
        """
        ...

    def delete(self, keys: Sequence[RevisionKey]) -> None:
        """Delete documents, and vectors that nothing else uses; a missing key is success."""
        ...

    def close(self) -> None:
        """Release files and threads."""
        ...


class Encoder(Protocol):
    """Text to unit vectors."""

    @property
    def model(self) -> str:
        """Name, precision and version: part of every index name and vector hash."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """Languages the model knows (`en`, `zh`); its scores weigh nothing for others."""
        ...

    def encode(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
        """Unit vectors, float32 (len(texts), dimension), in the order of the texts.

        `between` is called before each batch, for a caller that lets others pass.
        """
        ...


class Reranker(Protocol):
    """Scores texts against a query, read together."""

    @property
    def model(self) -> str:
        """Name, precision and version."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """Languages the model knows (`en`, `zh`); queries and skills of others are left alone."""
        ...

    def score(self, query: str, texts: Sequence[str]) -> Vector:
        """Relevance of each text, float32 (len(texts),), in one batch; higher is better.

        What is longer than the model reads is cut. The caller batches texts of like length.
        """
        ...
