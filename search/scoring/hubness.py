"""How high a skill scores for text that has nothing to do with it.

A skill that says a little of everything matches every task. What it scores for an unrelated text
is a property of the skill, so it is computed once a revision, with everyday document frequencies
(`search.text.background_frequencies`) in place of the library's: it depends neither on which other skills
are there nor on the order in which they came. Radovanović, Nanopoulos and Ivanović (JMLR 2010) show
why such hubs arise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from search.protocol import ForwardRecord
from search.scoring.weights import ScoringWeights
from search.text.background_frequencies import BackgroundFrequencies

BACKGROUND_MEAN_LENGTHS = (3.0, 53.0, 43.0, 573.0, 224.0)
"""Mean tokens a field (FIELDS) of the documents behind the background file."""


def compute_hubness(
    records: Sequence[ForwardRecord], background: BackgroundFrequencies, weights: ScoringWeights
) -> npt.NDArray[np.float64]:
    """Expected BM25F over the root of its mass, (len(records),), of an unrelated text.

    BM25F is a sum over terms, so the expectation over texts is the sum of each term's gain times
    the share of everyday documents that have it: no probe texts are drawn.
    """
    if not records:
        return np.empty(0)
    norms, k = np.array(weights.length_norms), weights.k_long
    lengths = np.stack([record.lengths for record in records]).astype(np.float64)
    damped = np.maximum(1.0 - norms + norms * lengths / np.array(BACKGROUND_MEAN_LENGTHS), 1e-6)
    sizes = [len(record.terms) for record in records]
    owners = np.repeat(np.arange(len(records)), sizes)
    counts = np.concatenate([record.counts for record in records])
    tf = np.einsum("tf,tf->t", counts, (np.array(weights.field_weights) / damped)[owners])
    worth = expected_idf(background, np.concatenate([record.terms for record in records]))
    gains = worth * (k + 1.0) * tf / (tf + k)
    summed = np.bincount(owners, weights=gains, minlength=len(records))
    mass = expected_idf(background, background.terms).sum()
    return np.asarray(summed / np.sqrt(mass or 1.0), dtype=np.float64)


def expected_idf(
    background: BackgroundFrequencies, terms: npt.NDArray[np.uint64]
) -> npt.NDArray[np.float64]:
    """Share of everyday documents that have each term, times its idf; 0 for unknown terms."""
    idf = background.idf(terms)
    return np.where(idf < background.max_idf, idf / np.expm1(idf), 0.0)
