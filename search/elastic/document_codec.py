"""Encoding and decoding of Elasticsearch documents, one kind per index of a set."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from config.errors import PermanentError
from search.blob_codec import (
    HASH_BYTES,
    pack_filters,
    pack_forward,
    pack_hashes,
    pack_passage_terms,
    unpack_filters,
    unpack_forward,
    unpack_hashes,
    unpack_passage_terms,
)
from search.protocol import (
    FILTER_NAMES,
    TEXT_FIELDS,
    Filters,
    ForwardRecord,
    SkillDocument,
    StoredRevision,
    Vector,
)
from skills import record_codec
from skills.record import RevisionKey

EMPTY_FIELD_TERM = "\u2205"
"""Token of a field without tokens; no text has it as a token.

With it every document has every field, so that the server's document counts and mean lengths are
those of the embedded engine.
"""

VECTOR_FIELDS = ("described", "head")
"""Index fields of the two skill vectors, in the order of `SkillDocument.vectors`."""

_DAMAGED = "the search index has a damaged record; run `skillbus reindex` or sync again"


def document_id(key: RevisionKey) -> str:
    """Return the `_id` of a revision's documents: a hash, as skill ids can be very long."""
    digest = blake2b(f"{key.seq}:{key.skill_id}".encode("utf-8", "surrogatepass"), digest_size=15)
    return urlsafe_b64encode(digest.digest()).decode()


def hash_keyword(value: bytes) -> str:
    """Return a text hash as a value of a `keyword` field."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def encode_blob(blob: bytes) -> str:
    """Return a blob as a value of a `binary` field."""
    return b64encode(blob).decode()


def decode_blob(text: str) -> bytes:
    """Return the bytes of a `binary` field; raises PermanentError if it is not base64."""
    try:
        return b64decode(text, validate=False)
    except (Base64Error, ValueError, TypeError) as error:
        raise PermanentError(_DAMAGED) from error


def to_json(document: Mapping[str, Any]) -> bytes:
    """Return a document as one line of JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _to_record(key: RevisionKey, **values: Any) -> bytes:
    return to_json({"skill_id": key.skill_id, "seq": key.seq, **values})


def decode_key(fields: Mapping[str, Any]) -> RevisionKey:
    """Return the revision key in the doc values of a hit."""
    return RevisionKey(str(fields["skill_id"][0]), int(fields["seq"][0]))


# -- index `skills`: what searches find


def skill_record(document: SkillDocument) -> bytes:
    """Encode token fields and filters."""
    values: dict[str, Any] = {
        name: " ".join(tokens) or EMPTY_FIELD_TERM
        for name, tokens in zip(TEXT_FIELDS, document.fields, strict=False)
    }
    if document.forward.completed:
        values["completed"] = " ".join(document.fields[-1])
    return _to_record(document.key, **values, **_filter_values(document.filters))


def _filter_values(filters: Filters) -> dict[str, list[str]]:
    return {name: list(chosen) for name in FILTER_NAMES if (chosen := getattr(filters, name))}


# -- index `vectors`: skill vectors


def vectors_record(
    key: RevisionKey, hashes: Sequence[bytes], vectors: Vector, filters: Filters
) -> bytes:
    """Encode the skill vectors (2, dimension) of a revision; `hashes` are those of its two texts.

    A zero vector (text in a language that the encoder does not know) is stored in the blob only,
    so that vector searches do not find it.
    """
    values: dict[str, Any] = dict(_filter_values(filters))
    for name, vector in zip(VECTOR_FIELDS, vectors, strict=True):
        if vector.any():
            values[name] = np.round(vector.astype(np.float64), 7).tolist()
    values["hashes"] = [hash_keyword(value) for value in hashes]
    content = np.ascontiguousarray(vectors, dtype="<f4").tobytes()
    values["vectors"] = encode_blob(pack_hashes(hashes) + content)
    return _to_record(key, **values)


def decode_skill_vectors(blob: bytes) -> tuple[tuple[bytes, ...], Vector]:
    """Decode the two text hashes and the vectors (2, dimension) of a skill's blob."""
    start = 2 * HASH_BYTES
    if len(blob) <= start or (len(blob) - start) % 8:
        raise PermanentError(_DAMAGED)
    vectors = np.frombuffer(blob, dtype="<f4", offset=start).reshape(2, -1)
    return unpack_hashes(blob[:start]), vectors


# -- indices `forward` and `revisions`: read by key


def forward_record(document: SkillDocument) -> bytes:
    """Encode the term counts that exact scores are computed from."""
    return _to_record(document.key, forward=encode_blob(pack_forward(document.forward)))


def decode_forward_record(source: Mapping[str, Any]) -> ForwardRecord:
    """Decode a forward record from the fields of a document."""
    return unpack_forward(decode_blob(source["forward"]))


def revision_record(document: SkillDocument) -> bytes:
    """Encode the parsed skill, its passage terms and its section hashes."""
    return _to_record(
        document.key,
        content_hash=document.content_hash,
        filters=pack_filters(document.filters),
        parsed=encode_blob(record_codec.dump(document.parsed)),
        passage_terms=encode_blob(pack_passage_terms(document.passage_terms)),
        section_hashes=encode_blob(pack_hashes(document.section_hashes)),
    )


REVISION_FIELDS = ("content_hash", "parsed", "passage_terms", "section_hashes", "filters")
"""The fields that `decode_revision` needs."""


def decode_revision(key: RevisionKey, source: Mapping[str, Any]) -> StoredRevision:
    """Decode a revision from the fields of a document."""
    return StoredRevision(
        key=key,
        content_hash=str(source["content_hash"]),
        parsed=record_codec.load(decode_blob(source["parsed"])),
        passage_terms=unpack_passage_terms(decode_blob(source["passage_terms"])),
        section_hashes=unpack_hashes(decode_blob(source["section_hashes"])),
        filters=unpack_filters(str(source["filters"])),
    )


# -- index `sections`: section vectors


def sections_record(
    key: RevisionKey, hashes: Sequence[bytes], vectors: Vector, filters: Filters
) -> bytes:
    """Encode the section vectors of a revision as int8, with the hashes of their texts.

    A zero vector is stored in the blob only, so that searches do not find it.
    """
    quantised = quantise_rows(vectors)
    values: dict[str, Any] = dict(_filter_values(filters))
    values["hashes"] = sorted({hash_keyword(value) for value in hashes})
    values["vectors"] = encode_blob(_pack_sections(hashes, quantised))
    values["sections"] = [{"vector": encode_bytes(row)} for row in quantised if row.any()]
    return _to_record(key, **values)


def encode_bytes(vector: npt.NDArray[np.int8]) -> str:
    """Encode a vector as a value of a `dense_vector` field of bytes, in hexadecimal."""
    return vector.tobytes().hex()


def quantise_rows(vectors: Vector) -> npt.NDArray[np.int8]:
    """Quantise vectors to int8, the largest element of each to 127."""
    largest = np.abs(vectors).max(axis=1, initial=0.0, keepdims=True)
    scale = np.where(largest > 0, largest, 1.0) / 127
    return np.rint(vectors / scale).astype(np.int8)


def _pack_sections(hashes: Sequence[bytes], quantised: npt.NDArray[np.int8]) -> bytes:
    """Pack the number of sections, their hashes, and the vectors as int8 scaled to 127."""
    return len(hashes).to_bytes(4, "little") + pack_hashes(hashes) + quantised.tobytes()


def unpack_sections(blob: bytes, dimension: int) -> tuple[tuple[bytes, ...], Vector]:
    """Unpack the `vectors` of `sections_record`: hashes and unit vectors (sections, dimension)."""
    count = int.from_bytes(blob[:4], "little")
    start = 4 + count * HASH_BYTES
    if len(blob) != start + count * dimension:
        raise PermanentError(_DAMAGED)
    hashes = unpack_hashes(blob[4:start])
    vectors = np.frombuffer(blob, dtype=np.int8, offset=start).astype(np.float32)
    vectors = vectors.reshape(count, dimension)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1
    vectors /= norms
    return hashes, vectors
