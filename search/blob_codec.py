"""Encoding of numpy arrays, hashes and filters as the blobs that both indexes store."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from config.errors import PermanentError
from search.protocol import (
    FILTER_NAMES,
    TEXT_FIELDS,
    CompletedTerms,
    Filters,
    ForwardRecord,
    PassageTerms,
    Vector,
)

HASH_BYTES = 16
"""Length of a text hash."""

_STATED_USES = 0xFFFF_FFFF
"""Marks the block of examples and exclusions, in the place of an origin's length."""


def pack_forward(record: ForwardRecord) -> bytes:
    """Pack a forward record: two sizes, then its arrays, little-endian.

    Examples and exclusions, and completed terms, follow only if there are any: a record without
    them is packed as it was before records had them.
    """
    sizes = np.array([len(record.terms), len(record.bigrams)], dtype="<u4")
    return b"".join(
        (
            sizes.tobytes(),
            record.terms.astype("<u8").tobytes(),
            record.bigrams.astype("<u8").tobytes(),
            record.bigram_weights.astype("<f4").tobytes(),
            record.lengths.astype("<f4").tobytes(),
            record.counts.astype("u1").tobytes(),
            _pack_stated_uses(record),
            *map(_pack_completed, record.completed),
        )
    )


def _pack_stated_uses(record: ForwardRecord) -> bytes:
    if not len(record.examples) and not record.excluded:
        return b""
    lists = (record.examples, *record.excluded)
    sizes = np.array([_STATED_USES, len(lists), *map(len, lists)], dtype="<u4")
    return sizes.tobytes() + np.concatenate(lists).astype("<u8").tobytes()


def _pack_completed(completed: CompletedTerms) -> bytes:
    origin = completed.origin.encode("utf-8", "surrogatepass")
    return b"".join(
        (
            np.array([len(origin), len(completed.terms)], dtype="<u4").tobytes(),
            np.array([completed.length], dtype="<f4").tobytes(),
            origin,
            completed.terms.astype("<u8").tobytes(),
            completed.counts.astype("u1").tobytes(),
        )
    )


def unpack_forward(blob: bytes) -> ForwardRecord:
    """Unpack a forward record; its arrays are read-only views of the blob."""
    reader, fields = _Reader(blob), len(TEXT_FIELDS)
    terms, bigrams = (int(size) for size in reader.take("<u4", 2))
    hashes = reader.take("<u8", terms)
    pairs, weights = reader.take("<u8", bigrams), reader.take("<f4", bigrams)
    lengths = reader.take("<f4", fields)
    counts = reader.take("u1", terms * fields).reshape(terms, fields)
    completed: list[CompletedTerms] = []
    uses = [np.empty(0, dtype=np.uint64)]
    while reader.has_more():
        size, count = (int(number) for number in reader.take("<u4", 2))
        if size == _STATED_USES:
            sizes = reader.take("<u4", count).tolist()
            uses = [reader.take("<u8", length) for length in sizes]
        else:
            completed.append(_unpack_completed(reader, size, count))
    return ForwardRecord(
        hashes, counts, pairs, weights, lengths, tuple(completed), uses[0], tuple(uses[1:])
    )


def _unpack_completed(reader: _Reader, size: int, terms: int) -> CompletedTerms:
    length = float(reader.take("<f4", 1)[0])
    origin = reader.take("u1", size).tobytes().decode("utf-8", "surrogatepass")
    return CompletedTerms(origin, reader.take("<u8", terms), reader.take("u1", terms), length)


def pack_passage_terms(terms: PassageTerms) -> bytes:
    """Pack passage terms: the number of offsets, then the three arrays, little-endian."""
    return b"".join(
        (
            np.array([len(terms.offsets)], dtype="<u4").tobytes(),
            terms.offsets.astype("<i4").tobytes(),
            terms.terms.astype("<u8").tobytes(),
            terms.counts.astype("<u2").tobytes(),
        )
    )


def unpack_passage_terms(blob: bytes) -> PassageTerms:
    """Unpack passage terms; the arrays are read-only views of the blob."""
    reader = _Reader(blob)
    offsets = reader.take("<i4", int(reader.take("<u4", 1)[0]))
    size = int(offsets[-1])
    return PassageTerms(offsets, reader.take("<u8", size), reader.take("<u2", size))


class _Reader:
    def __init__(self, blob: bytes) -> None:
        self._blob = blob
        self._offset = 0

    def take(self, dtype: str, count: int) -> np.ndarray:
        """Read the next `count` numbers; raises PermanentError if the blob is too short."""
        try:
            array = np.frombuffer(self._blob, dtype=dtype, count=count, offset=self._offset)
        except ValueError as error:
            raise PermanentError("the search index has a damaged record; rebuild it") from error
        self._offset += array.nbytes
        return array

    def has_more(self) -> bool:
        """Return whether the blob has more bytes."""
        return self._offset < len(self._blob)


def quantise(vector: Vector) -> tuple[float, bytes]:
    """Quantise a vector to int8; returns (scale, data), with scale 1 for a zero vector."""
    scale = float(np.abs(vector).max(initial=0.0)) / 127 or 1.0
    return scale, np.rint(vector / scale).astype(np.int8).tobytes()


def dequantise(scale: float, data: bytes) -> Vector:
    """Return a stored vector as float32: exact if `scale` is 0, else normalised from int8."""
    if scale == 0.0:
        return np.frombuffer(data, dtype="<f4")
    vector = np.frombuffer(data, dtype=np.int8).astype(np.float32)
    norm = float(np.linalg.norm(vector))
    return vector / np.float32(norm) if norm else vector


def pack_hashes(hashes: Sequence[bytes]) -> bytes:
    """Concatenate hashes of HASH_BYTES; raises PermanentError for another length."""
    if any(len(value) != HASH_BYTES for value in hashes):
        raise PermanentError(f"a text hash has {HASH_BYTES} bytes")
    return b"".join(hashes)


def unpack_hashes(blob: bytes) -> tuple[bytes, ...]:
    """Split the hashes of `pack_hashes`."""
    return tuple(blob[i : i + HASH_BYTES] for i in range(0, len(blob), HASH_BYTES))


def pack_filters(filters: Filters) -> str:
    """Encode filter values as JSON."""
    return json.dumps([getattr(filters, name) for name in FILTER_NAMES])


def unpack_filters(text: str) -> Filters:
    """Decode the filter values of `pack_filters`."""
    return Filters(*(tuple(values) for values in json.loads(text)))
