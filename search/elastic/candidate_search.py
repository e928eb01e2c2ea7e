"""Candidate searches in Elasticsearch: requests of lexical and vector searches, and their hits.

Sections are nested documents of a revision, so that a search of them finds each revision once, by
its best section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search.elastic.document_codec import (
    EMPTY_FIELD_TERM,
    VECTOR_FIELDS,
    decode_key,
    document_id,
    encode_bytes,
    quantise_rows,
)
from search.elastic.document_reader import MAX_HITS, DocumentReader
from search.elastic.index_sets import IndexSet
from search.protocol import (
    FILTER_NAMES,
    PREFIX_FIELDS,
    TEXT_FIELDS,
    Filters,
    FilterSearch,
    Hit,
    LexicalSearch,
    Search,
    SectionSearch,
    Vector,
    VectorSearch,
)
from search.scoring.weights import FIELD_BOOSTS
from skills.batches import batches
from skills.record import RevisionKey

_CANDIDATES_PER_HIT = 1.5
_MIN_CANDIDATES = 100
"""`num_candidates` of a vector search: a multiple of the hits, and its minimum."""

_EXTRA_REVISIONS = 0.1
_MIN_EXTRA_REVISIONS = 10
"""Hits requested beyond the limit of a search of sections, as a share of it and at least, since
superseded revisions take places."""

_WIDEN = 4
"""Factor on the number of hits when revisions of too few skills were found."""


def search_candidates(
    reader: DocumentReader, index_set: IndexSet, searches: Sequence[Search]
) -> list[list[Hit]]:
    """Return the hits of each search, in order, in one round trip.

    A search of sections takes further round trips while revisions of too few skills fill its
    answer.
    """
    hits: list[list[Hit]] = [[] for _ in searches]
    sizes = {place: _first_size(one) for place, one in enumerate(searches)}
    while sizes:
        answers = _run(reader, index_set, {place: searches[place] for place in sizes}, sizes)
        short = {}
        for place, answer in answers.items():
            found = parse_hits(searches[place], answer)
            one = searches[place]
            if isinstance(one, SectionSearch):
                hits[place], skills = _first_skills(found, one.limit)
                if skills < one.limit and sizes[place] <= len(found) < MAX_HITS:
                    short[place] = min(_WIDEN * sizes[place], MAX_HITS)
            else:
                hits[place] = found
        sizes = short
    return hits


def _run(
    reader: DocumentReader,
    index_set: IndexSet,
    searches: Mapping[int, Search],
    sizes: Mapping[int, int],
) -> dict[int, Mapping[str, Any]]:
    """Run the searches that can have hits; return their answers by position."""
    bodies = {place: search_body(one, sizes[place]) for place, one in searches.items()}
    sent = {place: body for place, body in bodies.items() if body is not None}
    answers = reader.search_many(
        [(_index_names(index_set, searches[place]), body) for place, body in sent.items()],
        ["hits.hits._score", "hits.hits.fields"],
        global_frequencies=True,
    )
    return dict(zip(sent, answers, strict=True))


def _index_names(index_set: IndexSet, one: Search) -> list[str]:
    if isinstance(one, SectionSearch):
        return [index_set.index_name("sections")]
    if isinstance(one, VectorSearch):
        return [index_set.index_name("vectors")]
    return [index_set.index_name("skills")]


def _first_size(one: Search) -> int:
    """Return the number of hits to request; for sections, superseded revisions come on top of the
    limit."""
    extra = max(int(_EXTRA_REVISIONS * one.limit), _MIN_EXTRA_REVISIONS)
    size = one.limit + extra if isinstance(one, SectionSearch) and one.limit > 0 else one.limit
    return min(size, MAX_HITS)


def _first_skills(found: Sequence[Hit], limit: int) -> tuple[list[Hit], int]:
    """Return the hits of the first `limit` skills, and the number of these skills."""
    kept: list[Hit] = []
    skills: set[str] = set()
    for hit in found:
        if hit.key.skill_id not in skills:
            if len(skills) == limit:
                break
            skills.add(hit.key.skill_id)
        kept.append(hit)
    return kept, len(skills)


def search_section_cosines(
    reader: DocumentReader, index_set: IndexSet, keys: Sequence[RevisionKey], vector: Vector
) -> dict[RevisionKey, float]:
    """Return the best cosine of a section of each of the revisions that have section vectors."""
    searches = []
    for batch in batches(dict.fromkeys(keys), MAX_HITS // 2):
        # More candidates are requested than can exist, so that no section is left out as too far.
        search = _nested_knn(vector, len(batch), len(batch) + _MIN_CANDIDATES)
        if search is None:
            return {}
        search["filter"] = [{"ids": {"values": [document_id(key) for key in batch]}}]
        body = {"knn": search, "size": len(batch), **_KEYS_ONLY}
        searches.append(([index_set.index_name("sections")], body))
    answers = reader.search_many(searches, ["hits.hits._score", "hits.hits.fields"])
    return {
        decode_key(hit["fields"]): _cosine(hit)
        for answer in answers
        for hit in answer.get("hits", {}).get("hits", ())
    }


_MAX_FILTER_LENGTH = 8_000
"""Maximum characters of a filter value (`ignore_above` in the mappings). No document is found by a
longer one, and the server refuses a search for one of more than 32 kB."""

_KEYS_ONLY: dict[str, Any] = {
    "track_total_hits": False,
    "stored_fields": "_none_",
    "_source": False,
    "docvalue_fields": ["skill_id", "seq"],
}
"""Part of a search body that fetches the keys of hits."""


def search_body(one: Search, size: int | None = None) -> dict[str, Any] | None:
    """Return the request body of a search for `size` hits, None if it can have no hits.

    Only the score and the key are fetched, the key from doc values: reading the stored fields of
    some hundred hits costs as much as finding them.
    """
    limit = min(one.limit if size is None else size, MAX_HITS)
    if limit < 1:
        return None
    found: dict[str, Any] | None
    if isinstance(one, FilterSearch):
        kind, found = "query", {"bool": {}}
    elif isinstance(one, LexicalSearch):
        kind, found = "query", _lexical_query(one)
    elif isinstance(one, SectionSearch):
        kind, found = "knn", _nested_knn(one.vector, limit, _num_candidates(limit))
    else:
        kind, found = "knn", _knn(one, limit)
    if found is None:
        return None
    if clauses := _filter_clauses(one.filters):
        (found["bool"] if kind == "query" else found)["filter"] = clauses
    return {kind: found, "size": limit, **_KEYS_ONLY}


def _lexical_query(one: LexicalSearch) -> dict[str, Any] | None:
    fields: dict[str, float] = dict(zip(TEXT_FIELDS, FIELD_BOOSTS, strict=True))
    if one.completed:
        fields = {"completed": 1.0}
    clauses = [
        {"term": {field: {"value": term, "boost": weight * field_weight}}}
        for term, weight in one.terms.items()
        if term and term != EMPTY_FIELD_TERM and weight > 0
        for field, field_weight in fields.items()
    ]
    clauses += [
        {"prefix": {field: {"value": one.prefix, "boost": fields[field]}}}
        for field in PREFIX_FIELDS
        if one.prefix
    ]
    if not clauses:  # a bool query without clauses matches everything
        return None
    return {"bool": {"should": clauses, "minimum_should_match": 1}}


def _knn(one: VectorSearch, limit: int) -> dict[str, Any] | None:
    if not one.vector.any():  # a zero vector has no cosine; the server refuses it
        return None
    return {
        "field": VECTOR_FIELDS[one.vector_field],
        "query_vector": one.vector.tolist(),
        "k": limit,
        "num_candidates": _num_candidates(limit),
        # Score by the exact vectors, not by their int8 quantisation.
        "rescore_vector": {"oversample": 1.0},
    }


def _nested_knn(vector: Vector, limit: int, candidates: int) -> dict[str, Any] | None:
    """Return a query for the `limit` revisions with the nearest sections; compares vectors as
    bytes."""
    quantised = quantise_rows(vector[None, :])[0]
    if not quantised.any():
        return None
    return {
        "field": "sections.vector",
        "query_vector": encode_bytes(quantised),
        "k": limit,
        "num_candidates": candidates,
    }


def _num_candidates(limit: int) -> int:
    return min(max(int(limit * _CANDIDATES_PER_HIT), _MIN_CANDIDATES), MAX_HITS)


def _filter_clauses(filters: Filters) -> list[dict[str, Any]]:
    return [
        {"terms": {name: [value for value in values if len(value) <= _MAX_FILTER_LENGTH]}}
        for name in FILTER_NAMES
        if (values := getattr(filters, name))
    ]


def parse_hits(one: Search, answer: Mapping[str, Any]) -> list[Hit]:
    """Return the hits of an answer; scores of a vector search are cosines, above 0."""
    hits = answer.get("hits", {}).get("hits", ())
    if isinstance(one, LexicalSearch | FilterSearch):
        return [Hit(decode_key(hit["fields"]), float(hit["_score"])) for hit in hits]
    near = ((hit, _cosine(hit)) for hit in hits)
    return [Hit(decode_key(hit["fields"]), cosine) for hit, cosine in near if cosine > 0.0]


def _cosine(hit: Mapping[str, Any]) -> float:
    """Return the cosine of a hit; Elasticsearch scores it as (1 + cosine) / 2."""
    return 2.0 * float(hit["_score"]) - 1.0
