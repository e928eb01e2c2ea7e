"""Groups tasks by likeness: by shared words, and by vectors where they have some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from search.text.background_frequencies import load_background
from search.text.function_words import drop_function_words
from search.text.tokens import term_ids, tokenize

MAX_TASKS = 1_000
"""Tasks that are grouped at once: the time grows with their square (1,000: 0.2 s)."""

_LEAST_WORDS = 0.3
_LEAST_MEAN = 0.35
"""Least cosine of two tasks that are alike: of their words, or the mean of that and of the cosine
of their vectors. With prompts of which it is known which skill they are for, .58 and .61 of the
pairs that a group holds are for the same skill."""

Matrix = npt.NDArray[np.float64]


def group_tasks(
    tasks: Sequence[str], vectors: npt.NDArray[np.float32] | None = None
) -> list[list[int]]:
    """Groups of tasks by their positions, largest first, the most typical task of each first.

    Each group is a task and all those that are alike to it and in no larger group (sphere
    exclusion; Butina, 1999). The result depends only on the tasks and their order. vectors: unit
    vectors of the default encoder, whose cosines of unrelated tasks are near 0, (len(tasks),
    dimension); zeros for a task without one.
    """
    if not tasks:
        return []
    cosines = _word_cosines(tasks)
    alike = cosines >= _LEAST_WORDS
    if vectors is not None:
        known = vectors.any(axis=1)
        means = (cosines + vectors.astype(np.float64) @ vectors.T) / 2
        alike = np.where(np.outer(known, known), means >= _LEAST_MEAN, alike)
    np.fill_diagonal(alike, True)
    free = np.ones(len(tasks), dtype=np.bool_)
    groups = []
    while free.any():
        counts = alike[:, free].sum(axis=1) * free
        leader = int(np.argmax(counts))
        others = np.flatnonzero(alike[leader] & free)
        groups.append([leader, *(int(other) for other in others if other != leader)])
        free[others] = False
    return groups


def _word_cosines(tasks: Sequence[str]) -> Matrix:
    """Cosines of the sets of terms, weighted by their rarity in general, (n, n)."""
    terms = [_distinct_terms(task) for task in tasks]
    places = {term: place for place, term in enumerate(sorted({t for one in terms for t in one}))}
    rows = np.repeat(np.arange(len(tasks)), [len(one) for one in terms])
    columns = np.array([places[term] for one in terms for term in one], dtype=np.intp)
    rarity = load_background().idf(term_ids(places))
    weights = sparse.csr_matrix(
        (rarity[columns].astype(np.float64), (rows, columns)), shape=(len(tasks), len(places))
    )
    lengths = np.sqrt(np.asarray(weights.multiply(weights).sum(axis=1)).ravel())
    unit = sparse.diags_array(1.0 / np.maximum(lengths, 1e-12)) @ weights
    return np.asarray((unit @ unit.T).toarray())


def _distinct_terms(task: str) -> list[str]:
    """The terms of a task without function words, or with them if it has no others."""
    stream = tokenize(task)
    return sorted(set(drop_function_words(stream, task) or stream))
