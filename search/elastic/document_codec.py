"""Documents as Elasticsearch keeps them, and back; pure."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

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
    FIELDS,
    ForwardRecord,
    SkillDocument,
    StoredRevision,
    Vector,
)
from skills import record_codec
from skills.record import RevisionKey

EMPTY_FIELD_TOKEN = "\u2205"  # noqa: S105 - a token of text
"""Stands in a field without tokens, as no token can look: so every document has every field, and
the server counts documents and mean lengths as the embedded engine does."""

FILTER_NAMES = ("source", "licence", "language", "tool")

_DAMAGED = "the search index holds a damaged record; `skillbus reindex` or sync again"


def document_id(key: RevisionKey) -> str:
    """The `_id` of a revision's documents: short whatever its path, and base64 that packs well."""
    digest = blake2b(f"{key.seq}:{key.skill_id}".encode("utf-8", "surrogatepass"), digest_size=15)
    return urlsafe_b64encode(digest.digest()).decode()


def hash_keyword(value: bytes) -> str:
    """A text hash as a keyword."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def encode_blob(blob: bytes) -> str:
    """A blob as a `binary` field takes it."""
    return b64encode(blob).decode()


def decode_blob(text: str) -> bytes:
    """The bytes of a `binary` field; raises PermanentError for anything else."""
    try:
        return b64decode(text, validate=False)
    except (Base64Error, ValueError, TypeError) as error:
        raise PermanentError(_DAMAGED) from error


def to_json(document: Mapping[str, Any]) -> bytes:
    """A document as one line."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _identified(key: RevisionKey, **values: Any) -> bytes:
    return to_json({"skill_id": key.skill_id, "seq": key.seq, **values})


def decode_key(fields: Mapping[str, Any]) -> RevisionKey:
    """The revision that a hit's doc values name."""
    return RevisionKey(str(fields["skill_id"][0]), int(fields["seq"][0]))


# -- what searches touch


def skill_record(document: SkillDocument, hashes: Sequence[bytes]) -> bytes:
    """Token fields, filters and vectors; hashes are those of the two encoded texts.

    A zero vector (text in a language that the encoder does not know) is no one's neighbour and
    is kept in the blob only.
    """
    values: dict[str, Any] = {
        name: " ".join(tokens) or EMPTY_FIELD_TOKEN
        for name, tokens in zip(FIELDS, document.fields, strict=True)
    }
    for name in FILTER_NAMES:
        if chosen := getattr(document.filters, name):
            values[name] = list(chosen)
    for name, vector in zip(("described", "head"), document.vectors, strict=True):
        if vector.any():
            values[name] = np.round(vector.astype(np.float64), 7).tolist()
    values["hashes"] = [hash_keyword(value) for value in hashes]
    vectors = np.ascontiguousarray(document.vectors, dtype="<f4").tobytes()
    values["vectors"] = encode_blob(pack_hashes(hashes) + vectors)
    return _identified(document.key, **values)


def decode_skill_vectors(blob: bytes) -> tuple[tuple[bytes, ...], Vector]:
    """The two text hashes and the vectors (2, dimension) of a skill's blob."""
    start = 2 * HASH_BYTES
    if len(blob) <= start or (len(blob) - start) % 8:
        raise PermanentError(_DAMAGED)
    vectors = np.frombuffer(blob, dtype="<f4", offset=start).reshape(2, -1)
    return unpack_hashes(blob[:start]), vectors


# -- what is read by key


def forward_record(document: SkillDocument) -> bytes:
    """The term counts that exact scores are computed from."""
    return _identified(document.key, forward=encode_blob(pack_forward(document.forward)))


def decode_forward_record(source: Mapping[str, Any]) -> ForwardRecord:
    """The forward record of a stored document."""
    return unpack_forward(decode_blob(source["forward"]))


def revision_record(document: SkillDocument) -> bytes:
    """The parsed skill, its passages' terms and its sections' hashes."""
    return _identified(
        document.key,
        content_hash=document.content_hash,
        filters=pack_filters(document.filters),
        parsed=encode_blob(record_codec.dump(document.parsed)),
        passage_terms=encode_blob(pack_passage_terms(document.passage_terms)),
        section_hashes=encode_blob(pack_hashes(document.section_hashes)),
    )


REVISION_FIELDS = ("content_hash", "parsed", "passage_terms", "section_hashes", "filters")
"""What `revision_of` needs."""


def decode_revision(key: RevisionKey, source: Mapping[str, Any]) -> StoredRevision:
    """The revision of a stored document."""
    return StoredRevision(
        key=key,
        content_hash=str(source["content_hash"]),
        parsed=record_codec.load(decode_blob(source["parsed"])),
        passage_terms=unpack_passage_terms(decode_blob(source["passage_terms"])),
        section_hashes=unpack_hashes(decode_blob(source["section_hashes"])),
        filters=unpack_filters(str(source["filters"])),
    )


# -- vectors of sections


def sections_record(key: RevisionKey, hashes: Sequence[bytes], vectors: Vector) -> bytes:
    """All section vectors of a revision, int8 with a scale each, and the hashes of their texts."""
    return _identified(
        key,
        hashes=sorted({hash_keyword(value) for value in hashes}),
        vectors=encode_blob(pack_sections(hashes, vectors)),
    )


def pack_sections(hashes: Sequence[bytes], vectors: Vector) -> bytes:
    """The number of sections, their hashes, then the vectors as int8 whose largest is 127."""
    largest = np.abs(vectors).max(axis=1, initial=0.0, keepdims=True)
    scale = np.where(largest > 0, largest, 1.0) / 127
    quantised = np.rint(vectors / scale).astype(np.int8)
    return len(hashes).to_bytes(4, "little") + pack_hashes(hashes) + quantised.tobytes()


def unpack_sections(blob: bytes) -> tuple[tuple[bytes, ...], Vector]:
    """Hashes and unit vectors (sections, dimension) of `pack_sections`."""
    count = int.from_bytes(blob[:4], "little")
    start = 4 + count * HASH_BYTES
    if len(blob) < start or (count and (len(blob) - start) % count):
        raise PermanentError(_DAMAGED)
    hashes = unpack_hashes(blob[4:start])
    vectors = np.frombuffer(blob, dtype=np.int8, offset=start).astype(np.float32)
    vectors = vectors.reshape(count, -1) if count else vectors.reshape(0, 0)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1
    vectors /= norms
    return hashes, vectors
