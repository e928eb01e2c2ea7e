"""Fetching candidates from Elasticsearch: the requests of lexical and vector searches, and hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search.elastic.document_codec import EMPTY_FIELD_TOKEN, VECTOR_FIELDS, decode_key
from search.elastic.document_reader import MAX_HITS, DocumentReader
from search.protocol import FILTER_NAMES, TEXT_FIELDS, Filters, Hit, LexicalSearch, VectorSearch
from search.scoring.weights import FIELD_BOOSTS

_CANDIDATES_PER_HIT = 1.5
_MIN_CANDIDATES = 100


def search_candidates(
    reader: DocumentReader, index: str, searches: Sequence[LexicalSearch | VectorSearch]
) -> list[list[Hit]]:
    """Return the hits of each search, in order, in one round trip."""
    bodies = [(place, search_body(one)) for place, one in enumerate(searches)]
    sent = [(place, body) for place, body in bodies if body is not None]
    answers = reader.search_many(
        [(index, body) for _, body in sent], ["hits.hits._score", "hits.hits.fields"]
    )
    hits: list[list[Hit]] = [[] for _ in searches]
    for (place, _), answer in zip(sent, answers, strict=True):
        hits[place] = parse_hits(searches[place], answer)
    return hits


def search_body(one: LexicalSearch | VectorSearch) -> dict[str, Any] | None:
    """Return the request body of a search, None if it can have no hits.

    Only the score and the key are fetched, the key from doc values: reading the stored fields of
    some hundred hits costs as much as finding them.
    """
    limit = min(one.limit, MAX_HITS)
    found = _lexical_query(one) if isinstance(one, LexicalSearch) else _knn_query(one, limit)
    if found is None or limit < 1:
        return None
    return {
        **found,
        "size": limit,
        "track_total_hits": False,
        "stored_fields": "_none_",
        "_source": False,
        "docvalue_fields": ["skill_id", "seq"],
    }


def _lexical_query(one: LexicalSearch) -> dict[str, Any] | None:
    fields: dict[str, float] = dict(zip(TEXT_FIELDS, FIELD_BOOSTS, strict=True))
    if one.completed:
        fields = {"completed": 1.0}
    clauses = [
        {"term": {field: {"value": term, "boost": weight * field_weight}}}
        for term, weight in one.terms.items()
        if term and term != EMPTY_FIELD_TOKEN and weight > 0
        for field, field_weight in fields.items()
    ]
    if not clauses:  # a bool query without clauses matches everything
        return None
    query: dict[str, Any] = {"should": clauses, "minimum_should_match": 1}
    if allowed := _filter_clauses(one.filters):
        query["filter"] = allowed
    return {"query": {"bool": query}}


def _knn_query(one: VectorSearch, limit: int) -> dict[str, Any] | None:
    if not one.vector.any():  # a zero vector has no cosine; the server refuses it
        return None
    candidates = min(max(int(limit * _CANDIDATES_PER_HIT), _MIN_CANDIDATES), MAX_HITS)
    search: dict[str, Any] = {
        "field": VECTOR_FIELDS[one.vector_field],
        "query_vector": one.vector.tolist(),
        "k": limit,
        "num_candidates": candidates,
        # Score by the exact vectors, not by their int8 quantisation.
        "rescore_vector": {"oversample": 1.0},
    }
    if allowed := _filter_clauses(one.filters):
        search["filter"] = allowed
    return {"knn": search}


def _filter_clauses(filters: Filters) -> list[dict[str, Any]]:
    return [
        {"terms": {name: list(values)}}
        for name in FILTER_NAMES
        if (values := getattr(filters, name))
    ]


def parse_hits(one: LexicalSearch | VectorSearch, answer: Mapping[str, Any]) -> list[Hit]:
    """Return the hits of an answer; scores of a vector search are cosines, above 0."""
    hits = answer.get("hits", {}).get("hits", ())
    if isinstance(one, LexicalSearch):
        return [Hit(decode_key(hit["fields"]), float(hit["_score"])) for hit in hits]
    # Elasticsearch scores a cosine as (1 + cosine) / 2.
    near = ((hit, 2.0 * float(hit["_score"]) - 1.0) for hit in hits)
    return [Hit(decode_key(hit["fields"]), cosine) for hit, cosine in near if cosine > 0.0]
