"""Requests and answers of searches; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search.elastic.document_codec import EMPTY_FIELD_TOKEN, FILTER_NAMES, decode_key, hash_keyword
from search.protocol import FIELDS, Filters, Hit, LexicalSearch, VectorSearch
from search.scoring.weights import FIELD_BOOSTS

MAX_HITS = 10_000
"""One answer of Elasticsearch has at most so many hits (`index.max_result_window`)."""

VECTOR_FIELDS = ("described", "head")

_EXPLORED = 1.5
_LEAST_EXPLORED = 100


def search_body(one: LexicalSearch | VectorSearch) -> dict[str, Any] | None:
    """The body of a search, None where nothing can be found.

    Nothing but the score and the key is fetched, the key from doc values: reading stored fields
    of some hundred hits costs as much as finding them.
    """
    limit = min(one.limit, MAX_HITS)
    found = _words(one) if isinstance(one, LexicalSearch) else _nearest(one, limit)
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


def _words(one: LexicalSearch) -> dict[str, Any] | None:
    clauses = [
        {"term": {field: {"value": term, "boost": weight * field_weight}}}
        for term, weight in one.terms.items()
        if term and term != EMPTY_FIELD_TOKEN and weight > 0
        for field, field_weight in zip(FIELDS, FIELD_BOOSTS, strict=True)
    ]
    if not clauses:  # a bool without clauses would match everything
        return None
    query: dict[str, Any] = {"should": clauses, "minimum_should_match": 1}
    if allowed := _filter(one.filters):
        query["filter"] = allowed
    return {"query": {"bool": query}}


def _nearest(one: VectorSearch, limit: int) -> dict[str, Any] | None:
    if not one.vector.any():  # has no direction; the server refuses it
        return None
    explored = min(max(int(limit * _EXPLORED), _LEAST_EXPLORED), MAX_HITS)
    search: dict[str, Any] = {
        "field": VECTOR_FIELDS[one.vector_field],
        "query_vector": one.vector.tolist(),
        "k": limit,
        "num_candidates": explored,
        # scores by the vectors themselves, not by their int8 stand-ins
        "rescore_vector": {"oversample": 1.0},
    }
    if allowed := _filter(one.filters):
        search["filter"] = allowed
    return {"knn": search}


def _filter(filters: Filters) -> list[dict[str, Any]]:
    return [
        {"terms": {name: list(values)}}
        for name in FILTER_NAMES
        if (values := getattr(filters, name))
    ]


def read_hits(one: LexicalSearch | VectorSearch, answer: Mapping[str, Any]) -> list[Hit]:
    """The hits of an answer; scores of vectors are cosines again, and above 0."""
    hits = answer.get("hits", {}).get("hits", ())
    if isinstance(one, LexicalSearch):
        return [Hit(decode_key(hit["fields"]), float(hit["_score"])) for hit in hits]
    # the server's score of a cosine is (1 + cosine) / 2
    near = ((hit, 2.0 * float(hit["_score"]) - 1.0) for hit in hits)
    return [Hit(decode_key(hit["fields"]), cosine) for hit, cosine in near if cosine > 0.0]


VECTOR_BLOB: dict[str, Any] = {
    "stored_fields": "_none_",
    "docvalue_fields": ["skill_id", "seq", "vectors"],
}
"""What is fetched of a skill whose vectors are wanted."""


def ids_query(ids: Sequence[str]) -> dict[str, Any]:
    """The documents with these ids, as a search: unlike a read by id it reaches doc values."""
    return {"query": {"ids": {"values": list(ids)}}, "size": len(ids), "track_total_hits": False}


def hashes_query(hashes: Sequence[bytes]) -> dict[str, Any]:
    """As many documents as hashes, those with rare ones of them first.

    One clause each: a `terms` query would score all alike, and a text that thousands share would
    crowd the others out.
    """
    clauses = [{"term": {"hashes": hash_keyword(value)}} for value in hashes]
    return {
        "query": {"bool": {"should": clauses, "minimum_should_match": 1}},
        "size": len(hashes),
        "track_total_hits": False,
    }
