"""How the embedded store keeps term vectors and mentions in a row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from graph.protocol import Mention

_PAIR = np.dtype([("term", "<u8"), ("weight", "<f4")])
_SIGN = 1 << 63


def signed(term: int) -> int:
    """An unsigned 64-bit term id as the signed integer SQLite keeps."""
    return term - (_SIGN << 1) if term >= _SIGN else term


def pack_vector(vector: Mapping[int, float]) -> bytes:
    """A sparse vector as (term u64, weight f32) pairs, by term."""
    pairs = np.array(sorted(vector.items()), dtype=object).reshape(-1, 2)
    packed = np.empty(len(pairs), dtype=_PAIR)
    packed["term"] = pairs[:, 0].astype(np.uint64)
    packed["weight"] = pairs[:, 1].astype(np.float32)
    return packed.tobytes()


def unpack_vector(blob: bytes) -> dict[int, float]:
    """What `pack_vector` packed, weights rounded to float32."""
    packed = np.frombuffer(blob, dtype=_PAIR)
    return dict(zip(packed["term"].tolist(), packed["weight"].tolist(), strict=True))


def packed_terms(*blobs: bytes) -> list[int]:
    """The distinct terms of packed vectors, as SQLite's signed integers."""
    terms = [np.frombuffer(blob, dtype=_PAIR)["term"] for blob in blobs]
    joined: list[int] = np.unique(np.concatenate(terms)).view(np.int64).tolist()
    return joined


def pack_mentions(mentions: Sequence[Mention]) -> str:
    """Mentions as JSON rows."""
    rows = [[m.name, m.kind, m.line, m.evidence, m.position] for m in mentions]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def unpack_mentions(text: str) -> tuple[Mention, ...]:
    """What `pack_mentions` packed."""
    return tuple(Mention(*row) for row in json.loads(text))
