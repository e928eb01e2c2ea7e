"""Columns of a pack that hold binary codes of its vectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from search.binary_codes import BinaryCodes, count_words
from search.local.packs.mapped_columns import Array, Column
from search.protocol import Vector


def code_columns(dimension: int, prefix: str = "", lists: str = "") -> list[Column]:
    """Return the columns of the codes of vectors. lists: see `Column`."""
    words = [Column(name, "<u8", lists=lists) for name in _word_names(dimension, prefix)]
    return [*words, *(Column(prefix + name, "<f4", lists=lists) for name in ("offsets", "lengths"))]


def encode_columns(
    vectors: npt.NDArray[np.int8] | Vector, inverse_norms: Vector, mean: Vector, prefix: str = ""
) -> Mapping[str, Array]:
    """Return the values of the columns. inverse_norms: 1 / the norm of each vector, or 0."""
    codes = BinaryCodes.create(mean, len(vectors))
    codes.encode(0, vectors, inverse_norms)
    words = dict(zip(_word_names(vectors.shape[1], prefix), codes.bits, strict=True))
    return {**words, f"{prefix}offsets": codes.offsets, f"{prefix}lengths": codes.lengths}


def read_codes(values: Mapping[str, Array], mean: Vector, prefix: str = "") -> BinaryCodes:
    """Return the codes that the columns hold."""
    words = [values[name] for name in _word_names(len(mean), prefix)]
    return BinaryCodes(mean, words, values[f"{prefix}offsets"], values[f"{prefix}lengths"])


def _word_names(dimension: int, prefix: str) -> list[str]:
    return [f"{prefix}word{number}" for number in range(count_words(dimension))]
