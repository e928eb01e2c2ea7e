"""Background document frequencies: how common each term is in public agent skills.

`background_frequencies.npz` was counted once over 12,000 public agent skills under permissive
licences. It holds the 56,513 terms that at least six of these documents have: hashes of terms (as
differences, which compress well) and quantised inverse document frequencies, no text. Weights
from it, as in links, do not depend on the library. `tests/support/samples/data_files.py` generates the
file.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from config.errors import PermanentError
from search.protocol import TermIds

COMMON_DOCUMENT_SHARE = 0.2
"""Terms in more than this share of documents are too common to relate two skills."""

IDF_LEVELS = 255
"""Quantisation level of `max_idf`; idf is linear in the level."""


@dataclass(frozen=True, slots=True)
class BackgroundFrequencies:
    """Sorted term hashes (uint64) with their quantised idf (uint8, of IDF_LEVELS)."""

    terms: TermIds
    levels: npt.NDArray[np.uint8]
    max_idf: float

    def idf(self, terms: TermIds) -> npt.NDArray[np.float64]:
        """Return ln(1 + documents / df) of each term; `max_idf` for unknown terms."""
        if not len(self.terms):
            return np.full(len(terms), self.max_idf)
        places = np.minimum(np.searchsorted(self.terms, terms), len(self.terms) - 1)
        known = self.terms[places] == terms
        return np.where(known, self.levels[places] * (self.max_idf / IDF_LEVELS), self.max_idf)

    def is_common(self, idf: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return which idf values are of terms in more than COMMON_DOCUMENT_SHARE of documents."""
        return np.asarray(idf < np.log1p(1 / COMMON_DOCUMENT_SHARE))


def read_background(content: bytes) -> BackgroundFrequencies:
    """Parse the content of a file; raises PermanentError if it is not valid."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return BackgroundFrequencies(
                terms=np.cumsum(arrays["steps"], dtype=np.uint64),
                levels=arrays["levels"],
                max_idf=float(arrays["largest"]),
            )
    except (ValueError, OSError, KeyError) as error:
        raise PermanentError(f"the background frequencies cannot be read: {error}") from error


@lru_cache(maxsize=1)
def load_background() -> BackgroundFrequencies:
    """Return the background frequencies that ship with this package."""
    return read_background(files("search.text").joinpath("background_frequencies.npz").read_bytes())
