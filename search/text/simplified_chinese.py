"""Conversion of traditional to simplified Chinese characters, so that either finds the other.

`simplified_chinese.npz` holds 2,956 pairs of code points from the table TSCharacters of OpenCC
(Apache-2.0): single characters only, each with its first simplified form.
`tests/support/samples/data_files.py` generates the file from that table.
"""

from __future__ import annotations

import io
from functools import lru_cache
from importlib.resources import files

import numpy as np


def to_simplified(text: str) -> str:
    """Replace each traditional character of a text; its length does not change."""
    return text.translate(_table())


@lru_cache(maxsize=1)
def _table() -> dict[int, int]:
    data = files("search.text").joinpath("simplified_chinese.npz").read_bytes()
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        pairs = zip(arrays["traditional"].tolist(), arrays["simplified"].tolist(), strict=True)
        table: dict[int, int] = dict(pairs)
    # Some simplified forms are traditional characters of others: resolve them once more.
    return {before: table.get(after, after) for before, after in table.items()}
