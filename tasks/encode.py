"""Encode texts to vectors, each text once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from config.tracing import Attributes, span
from search.protocol import Encoder, StoredRevision, Vector
from search.skill_analysis import skill_texts, text_hash
from skills.record import ParsedSkill, RevisionKey
from tasks.services import Services


def supports_language(encoder: Encoder, skill: ParsedSkill) -> bool:
    """Return whether the encoder was trained on the skill's language; otherwise vectors mean
    nothing."""
    return skill.record.language in encoder.languages


def encode_skills(
    encoder: Encoder, revisions: Sequence[StoredRevision], encode: Callable[[list[str]], Vector]
) -> dict[RevisionKey, Vector]:
    """Return skill vectors (2, dimension); zero for languages that the encoder does not support.

    encode: encodes texts with the encoder.
    """
    vectors = np.zeros((len(revisions), 2, encoder.dimension), np.float32)
    known = [row for row, one in enumerate(revisions) if supports_language(encoder, one.parsed)]
    if known:
        texts = [text for row in known for text in skill_texts(revisions[row].parsed)]
        vectors[known] = encode(texts).reshape(len(known), 2, encoder.dimension)
    return {one.key: pair for one, pair in zip(revisions, vectors, strict=True)}


def encode_cached(services: Services, texts: Sequence[str], in_bulk: bool = True) -> Vector:
    """Return vectors (texts, dimension); texts that the index has by hash are not encoded again.

    in_bulk: pause between batches while queries are being answered.
    """
    encoder = services.encoder.get()
    hashes = [text_hash(encoder.model, text) for text in texts]
    known = services.index.get_cached_vectors(list(dict.fromkeys(hashes)))
    missing = {
        digest: text for digest, text in zip(hashes, texts, strict=True) if digest not in known
    }
    if missing:
        pause = services.coordinator.yield_to_queries if in_bulk else None
        attributes: Attributes = {
            "gen_ai.operation.name": "embeddings",
            "gen_ai.request.model": encoder.model,
            "skillbus.texts": len(missing),
        }
        with span(f"embeddings {encoder.model}", attributes):
            fresh = encoder.encode_texts(list(missing.values()), pause)
        known = {**known, **dict(zip(missing, fresh, strict=True))}
    return np.stack([known[digest] for digest in hashes]).astype(np.float32, copy=False)
