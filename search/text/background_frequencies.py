"""Document frequencies of everyday skill language, as a small file of numbers.

`background.npz` was counted once over 12,000 public agent skills under permissive licences. It
holds hashes of terms (as steps from one to the next, which compress) and quantised inverse
document frequencies, no text: 56,513 terms that at least six of the documents have. Links are
weighed with it, so that a pair of skills has one score in every library. `build_background` makes
it anew.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from config.errors import PermanentError
from search.protocol import TermIds
from search.text.tokens import term_ids

MIN_DOCUMENT_FREQUENCY = 6
"""Rarer terms are left out of the file; they get the largest idf."""

COMMON_DOCUMENT_SHARE = 0.2
"""Terms in more than this share of documents say nothing about what two skills share."""

_LEVELS = 255


@dataclass(frozen=True, slots=True)
class BackgroundFrequencies:
    """Sorted term hashes (uint64) with their quantised idf (uint8); `largest` is level 255."""

    terms: TermIds
    levels: npt.NDArray[np.uint8]
    max_idf: float
    document_count: int

    def idf(self, terms: TermIds) -> npt.NDArray[np.float64]:
        """ln(1 + documents / df) of each term; the largest for terms that are not in the file."""
        if not len(self.terms):
            return np.full(len(terms), self.max_idf)
        places = np.minimum(np.searchsorted(self.terms, terms), len(self.terms) - 1)
        known = self.terms[places] == terms
        return np.where(known, self.levels[places] * (self.max_idf / _LEVELS), self.max_idf)

    def is_common(self, idf: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Which idf values belong to terms above COMMON_SHARE."""
        return np.asarray(idf < np.log1p(1 / COMMON_DOCUMENT_SHARE))


def build_background(streams: Iterable[Iterable[str]]) -> bytes:
    """The content of a background file, counted over the token stream of each document."""
    frequencies: dict[int, int] = {}
    documents = 0
    for stream in streams:
        documents += 1
        for term in np.unique(term_ids(stream)).tolist():
            frequencies[term] = frequencies.get(term, 0) + 1
    kept = sorted(term for term, df in frequencies.items() if df >= MIN_DOCUMENT_FREQUENCY)
    df = np.array([frequencies[term] for term in kept], dtype=np.float64)
    largest = float(np.log1p(documents / 1.0)) if documents else 1.0
    levels = np.rint(np.log1p(documents / df) / largest * _LEVELS).astype(np.uint8)
    out = io.BytesIO()
    np.savez_compressed(
        out,
        steps=np.diff(np.array(kept, dtype=np.uint64), prepend=np.uint64(0)),
        levels=levels,
        largest=np.float64(largest),
        documents=np.int64(documents),
    )
    return out.getvalue()


def read_background(content: bytes) -> BackgroundFrequencies:
    """A background from a file's content; raises PermanentError when it is not one."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return BackgroundFrequencies(
                terms=np.cumsum(arrays["steps"], dtype=np.uint64),
                levels=arrays["levels"],
                max_idf=float(arrays["largest"]),
                document_count=int(arrays["documents"]),
            )
    except (ValueError, OSError, KeyError) as error:
        raise PermanentError(f"the background file cannot be read: {error}") from error


@lru_cache(maxsize=1)
def load_background() -> BackgroundFrequencies:
    """The background that ships with this package."""
    return read_background(files("search.text").joinpath("background_frequencies.npz").read_bytes())
