"""Generators of the data files that ship with `search.text`."""

from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np

from search.text.background_frequencies import IDF_LEVELS
from search.text.tokens import term_ids

MIN_DOCUMENT_FREQUENCY = 6
"""Rarer terms are left out of the file; they get the largest idf."""

_LAST_PLANE_0 = 0xFFFF


def build_background(streams: Iterable[Iterable[str]]) -> bytes:
    """Return `background_frequencies.npz`, counted over the token stream of each document."""
    frequencies: dict[int, int] = {}
    documents = 0
    for stream in streams:
        documents += 1
        for term in np.unique(term_ids(stream)).tolist():
            frequencies[term] = frequencies.get(term, 0) + 1
    kept = sorted(term for term, df in frequencies.items() if df >= MIN_DOCUMENT_FREQUENCY)
    df = np.array([frequencies[term] for term in kept], dtype=np.float64)
    largest = float(np.log1p(documents / 1.0)) if documents else 1.0
    levels = np.rint(np.log1p(documents / df) / largest * IDF_LEVELS).astype(np.uint8)
    out = io.BytesIO()
    np.savez_compressed(
        out,
        steps=np.diff(np.array(kept, dtype=np.uint64), prepend=np.uint64(0)),
        levels=levels,
        largest=np.float64(largest),
        documents=np.int64(documents),
    )
    return out.getvalue()


def build_character_table(lines: Iterable[str]) -> bytes:
    """Return `simplified_chinese.npz`.

    lines: a traditional character, a tab, and its simplified forms separated by spaces.
    """
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
    out = io.BytesIO()
    np.savez_compressed(
        out,
        traditional=np.array(list(kept), dtype=np.uint16),
        simplified=np.array(list(kept.values()), dtype=np.uint16),
    )
    return out.getvalue()
