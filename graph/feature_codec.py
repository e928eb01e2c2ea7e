"""Serialisation of link features for the stores: term vectors and mentions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from graph.records import Mention

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
