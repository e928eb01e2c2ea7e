"""Conversion of records into stored values and back, as far as both stores have the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graph.records import CatalogEntry, LinkFeatures, Mention, Publication, SkillState
from skills.judgement import judgements_from_json

_PAIR = np.dtype([("term", "<i8"), ("weight", "<f4")])


def pack_vector(vector: Mapping[int, float]) -> bytes:
    """Serialise a sparse vector as (term i64, weight f32) pairs, sorted by term."""
    return np.array(sorted(vector.items()), dtype=_PAIR).tobytes()


def unpack_vector(blob: bytes) -> dict[int, float]:
    """Deserialise the vector of `pack_vector`; weights were rounded to float32."""
    packed = np.frombuffer(blob, dtype=_PAIR)
    return dict(zip(packed["term"].tolist(), packed["weight"].tolist(), strict=True))


def pack_mentions(mentions: Sequence[Mention]) -> str:
    """Serialise mentions as JSON rows."""
    rows = [[m.name, m.kind, m.line, m.evidence, m.position] for m in mentions]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def unpack_mentions(text: str) -> tuple[Mention, ...]:
    """Deserialise the mentions of `pack_mentions`."""
    return tuple(Mention(*row) for row in json.loads(text))


def features_from_row(row: Iterable[Any]) -> LinkFeatures:
    """Convert a row of the statement `link_features`; the name may be null if it is empty."""
    skill_id, source_id, path, name, body, description, mentions = row
    vectors = (unpack_vector(body), unpack_vector(description))
    return LinkFeatures(skill_id, source_id, path, name or "", *vectors, unpack_mentions(mentions))


def entry_from_row(row: Iterable[Any]) -> CatalogEntry:
    """Convert a row of the ENTRY_COLUMNS of a store, which are in the order of the fields."""
    values = list(row)
    values[3] = SkillState(values[3])
    values[15], values[16] = bool(values[15]), bool(values[16])
    values[19] = judgements_from_json(values[19])
    values[20] = optional_bool(values[20])
    return CatalogEntry(*values)


def optional_bool(value: int | None) -> bool | None:
    """Convert a truth value that may be unknown."""
    return None if value is None else bool(value)


def published_values(publication: Publication) -> dict[str, Any]:
    """Return the values of a skill that are stored when it is published, by name."""
    return {
        "name": publication.name,
        "description": publication.description,
        "content_hash": publication.content_hash,
        "warnings": publication.warnings,
        "safety_level": publication.safety_level,
        "scanner": publication.scanner_version,
        "parser": publication.parser_version,
        "tokens": publication.tokens,
        "language": publication.language,
        "licence": publication.licence,
        "has_scripts": publication.has_scripts,
        "updated": time.time(),
    }
