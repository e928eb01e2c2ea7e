"""Hubness: the expected score of a skill for unrelated text.

A skill that mentions a little of everything matches every task. Its expected score for unrelated
text is computed once per revision, with background document frequencies instead of the library's,
so that it does not depend on other skills. Radovanović, Nanopoulos and Ivanović (JMLR 2010)
explain why such hubs arise.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from search.packed_records import PackedRecords
from search.scoring.weights import ScoringWeights
from search.text.background_frequencies import BackgroundFrequencies

BACKGROUND_MEAN_LENGTHS = (3.0, 53.0, 43.0, 573.0, 224.0, 60.0)
"""Mean words per field (FIELDS) of the documents behind the background frequencies.

They have no completions; a full one has about 60 words.
"""


def compute_hubness(
    records: PackedRecords, background: BackgroundFrequencies, weights: ScoringWeights
) -> npt.NDArray[np.float64]:
    """Return the expected BM25F of each record for unrelated text, (len(records),).

    Like `ScoredCandidates.evidence` it is divided by the root of the text's idf mass. BM25F is a
    sum over terms, so its expectation is the sum of each term's gain times the share of
    background documents that have the term; no texts are sampled.
    """
    if not len(records):
        return np.empty(0)
    width, k = records.lengths.shape[1], weights.k_long
    norms, means = np.array(weights.length_norms[:width]), np.array(BACKGROUND_MEAN_LENGTHS[:width])
    damped = np.maximum(1.0 - norms + norms * records.lengths / means, 1e-6)
    field_weights = np.array(weights.field_weights[:width]) / damped
    owners = records.terms.owners
    tf = np.einsum("tf,tf->t", records.counts, field_weights[owners])
    worth = expected_idf(background, records.terms.values)
    gains = worth * (k + 1.0) * tf / (tf + k)
    sums = np.bincount(owners, weights=gains, minlength=len(records))
    mass = expected_idf(background, background.terms).sum()
    return np.asarray(sums / np.sqrt(mass or 1.0), dtype=np.float64)


def expected_idf(
    background: BackgroundFrequencies, terms: npt.NDArray[np.uint64]
) -> npt.NDArray[np.float64]:
    """Return idf times the share of background documents with the term; 0 for unknown terms."""
    idf = background.idf(terms)
    return np.where(idf < background.max_idf, idf / np.expm1(idf), 0.0)
