"""Grouping of tasks by similarity: by shared words, and by vectors if they have some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from search.text.background_frequencies import load_background
from search.text.function_words import drop_function_words
from search.text.tokens import term_ids, tokenize

MAX_TASKS = 1_000
"""Maximum tasks that are grouped at once: the time grows with their square (1,000: 0.2 s)."""

_MIN_WORD_COSINE = 0.3
_MIN_MEAN_COSINE = 0.35
"""Minimum cosine of two similar tasks: of their words, or the mean of that and the cosine of their
vectors. On prompts labelled with their skill, .58 and .61 of the pairs in a group are for the same
skill."""

_TERMS_AT_ONCE = 1_024

Matrix = npt.NDArray[np.float64]


def group_tasks(
    tasks: Sequence[str], vectors: npt.NDArray[np.float32] | None = None
) -> list[list[int]]:
    """Return groups of tasks by their positions, largest first, the most typical task of each
    first.

    Each group is a task and all similar tasks that are in no larger group (sphere exclusion;
    Butina, 1999). The result depends only on the tasks and their order. vectors: unit vectors of
    the default encoder, whose cosines of unrelated tasks are near 0, (len(tasks), dimension); zeros
    for a task without a vector.
    """
    if not tasks:
        return []
    cosines = _word_cosines(tasks)
    alike = cosines >= _MIN_WORD_COSINE
    if vectors is not None:
        known = vectors.any(axis=1)
        means = (cosines + vectors.astype(np.float64) @ vectors.T) / 2
        alike = np.where(np.outer(known, known), means >= _MIN_MEAN_COSINE, alike)
    np.fill_diagonal(alike, True)
    free = np.ones(len(tasks), dtype=np.bool_)
    counts = alike.sum(axis=1)  # of the free tasks that are similar to each
    groups = []
    while free.any():
        leader = int(np.argmax(counts * free))
        others = np.flatnonzero(alike[leader] & free)
        groups.append([leader, *(int(other) for other in others if other != leader)])
        free[others] = False
        counts -= alike[:, others].sum(axis=1)
    return groups


def _word_cosines(tasks: Sequence[str]) -> Matrix:
    """Return the cosines of the sets of terms, weighted by their rarity in general, (n, n)."""
    terms = [_distinct_terms(task) for task in tasks]
    places = {term: place for place, term in enumerate(sorted({t for one in terms for t in one}))}
    rows = np.repeat(np.arange(len(tasks)), [len(one) for one in terms])
    columns = np.array([places[term] for one in terms for term in one], dtype=np.intp)
    weights = load_background().idf(term_ids(places))[columns].astype(np.float64)
    lengths = np.sqrt(np.bincount(rows, weights**2, minlength=len(tasks)))
    weights /= np.maximum(lengths, 1e-12)[rows]
    cosines = np.zeros((len(tasks), len(tasks)))
    for first in range(0, len(places), _TERMS_AT_ONCE):
        chosen = (columns >= first) & (columns < first + _TERMS_AT_ONCE)
        part = np.zeros((len(tasks), _TERMS_AT_ONCE))
        part[rows[chosen], columns[chosen] - first] = weights[chosen]
        cosines += part @ part.T
    return cosines


def _distinct_terms(task: str) -> list[str]:
    return sorted(set(drop_function_words(tokenize(task), task)))
