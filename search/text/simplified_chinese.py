"""Traditional Chinese characters as simplified ones, so that either finds the other.

`characters.npz` holds 2,956 pairs of code points, single characters only, from the table
TSCharacters of OpenCC (Apache-2.0); where a character has several simplified forms, the first.
`pack` makes the file anew from that table.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files

import numpy as np

_LAST_PLANE_0 = 0xFFFF


def to_simplified(text: str) -> str:
    """The text with each traditional character replaced; its length stays the same."""
    return text.translate(_table())


@lru_cache(maxsize=1)
def _table() -> dict[int, int]:
    data = files("search.text").joinpath("simplified_chinese.npz").read_bytes()
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        pairs = zip(arrays["traditional"].tolist(), arrays["simplified"].tolist(), strict=True)
        table: dict[int, int] = dict(pairs)
    # What is a traditional character itself for another one goes on to that one's form.
    return {before: table.get(after, after) for before, after in table.items()}


def pack_character_table(lines: Iterable[str]) -> bytes:
    """The file, from lines of a traditional character, a tab, and its simplified forms."""
    pairs = {}
    for line in lines:
        before, _, after = line.rstrip("\n").partition("\t")
        forms = after.split()
        if len(before) == 1 and forms and len(forms[0]) == 1 and forms[0] != before:
            pairs[ord(before)] = ord(forms[0])
    kept = {
        before: after
        for before, after in sorted(pairs.items())
        if max(before, after) <= _LAST_PLANE_0
    }
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        traditional=np.array(list(kept), dtype=np.uint16),
        simplified=np.array(list(kept.values()), dtype=np.uint16),
    )
    return buffer.getvalue()
