"""Reads of vectors from Elasticsearch, by revision and by text hash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search.elastic.document_codec import (
    decode_blob,
    decode_key,
    decode_skill_vectors,
    document_id,
    hash_keyword,
    unpack_sections,
)
from search.elastic.document_reader import READ_BATCH, DocumentReader
from search.elastic.index_sets import IndexSet
from search.protocol import Vector
from skills.batches import batches
from skills.record import RevisionKey

_BATCHES_PER_REQUEST = 4
_MAX_HASH_ROUNDS = 4

_VECTOR_BLOB: dict[str, Any] = {
    "stored_fields": "_none_",
    "docvalue_fields": ["skill_id", "seq", "vectors"],
}
"""Part of a search body that fetches the key and the vectors of a skill."""


def read_skill_vectors(
    reader: DocumentReader, index_set: IndexSet, keys: Sequence[RevisionKey]
) -> dict[RevisionKey, Vector]:
    """Return skill vectors, each float32 (2, dimension); a key without them is left out."""
    # The source of a reindex may be of a version that stored skill vectors in `skills`.
    indices = [index_set.index_name("skills"), index_set.index_name("vectors")]
    found = {}
    for some in batches(keys, _BATCHES_PER_REQUEST * READ_BATCH):
        searches = [
            (
                indices,
                _ids_query([document_id(key) for key in batch]) | _VECTOR_BLOB,
            )
            for batch in batches(some, READ_BATCH)
        ]
        for answer in reader.search_many(searches, ["hits.hits.fields"]):
            for fields in _hit_values(answer, "fields"):
                blob = decode_blob(fields["vectors"][0])
                found[decode_key(fields)] = decode_skill_vectors(blob)[1]
    return found


def read_vectors_by_hash(
    reader: DocumentReader, index_set: IndexSet, hashes: Sequence[bytes]
) -> dict[bytes, Vector]:
    """Return vectors by text hash: exact ones of skills, dequantised ones of sections."""
    found: dict[bytes, Vector] = {}
    for batch in batches(dict.fromkeys(hashes), READ_BATCH):
        found |= _read_batch(reader, index_set, batch)
    return found


def _read_batch(
    reader: DocumentReader, index_set: IndexSet, hashes: Sequence[bytes]
) -> dict[bytes, Vector]:
    found: dict[bytes, Vector] = {}
    missing, dimension = list(hashes), index_set.identity.dimension
    # Documents of common texts can fill the hits of a round; the next round finds the others.
    for _ in range(_MAX_HASH_ROUNDS):
        query = _hashes_query(missing)
        skills, sections = reader.search_many(
            [
                ([index_set.index_name("vectors")], query | _VECTOR_BLOB),
                ([index_set.index_name("sections")], query | {"_source": ["vectors"]}),
            ],
            ["hits.hits.fields", "hits.hits._source"],
        )
        blobs = [one["vectors"] for one in _hit_values(sections, "_source")]
        pairs = [one["vectors"][0] for one in _hit_values(skills, "fields")]
        vectors = [unpack_sections(decode_blob(blob), dimension) for blob in blobs]
        vectors += [decode_skill_vectors(decode_blob(blob)) for blob in pairs]
        fresh = {
            text: vector
            for texts, block in vectors
            for text, vector in zip(texts, block, strict=True)
        }
        requested = missing
        missing = [value for value in requested if value not in fresh]
        found |= {value: fresh[value] for value in requested if value in fresh}
        all_hits_read = max(len(blobs), len(pairs)) < len(requested)
        if not missing or missing == requested or all_hits_read:
            break
    return found


def _ids_query(ids: Sequence[str]) -> dict[str, Any]:
    """Return a search body for documents with vectors by id; unlike mget, a search can read doc
    values."""
    wanted = [{"ids": {"values": list(ids)}}, {"exists": {"field": "vectors"}}]
    return {"query": {"bool": {"filter": wanted}}, "size": len(ids), "track_total_hits": False}


def _hashes_query(hashes: Sequence[bytes]) -> dict[str, Any]:
    """Return a search body for documents with any of the hashes; rare hashes rank first.

    Each hash is a clause: a `terms` query would score all documents alike, and those of a hash
    that thousands share would fill the hits.
    """
    clauses = [{"term": {"hashes": hash_keyword(value)}} for value in hashes]
    return {
        "query": {"bool": {"should": clauses, "minimum_should_match": 1}},
        "size": len(hashes),
        "track_total_hits": False,
    }


def _hit_values(answer: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return `fields` (doc values) or `_source` (stored fields) of the hits of an answer."""
    return [hit[name] for hit in answer.get("hits", {}).get("hits", ())]
