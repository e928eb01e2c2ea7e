"""Personalised PageRank over whole rows: the reference for `graph.pagerank`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import sparse

from config.settings import DiffusionSettings
from graph.pagerank import direction_weights, normalise_seeds, transition_row
from graph.records import Adjacency

_TOLERANCE = 1e-12


def exact_pagerank(
    seeds: Mapping[str, float], rows: Mapping[str, Adjacency], settings: DiffusionSettings
) -> dict[str, float]:
    """The solution of s = a p + (1 - a) T' s, skills with a score above 0; they sum to 1.

    rows: all of the graph, uncut.
    """
    index: dict[str, int] = {}
    sources, targets, shares = [], [], []
    weights = direction_weights(settings)
    for skill_id, row in rows.items():
        for other, share in transition_row(row, weights).shares:
            sources.append(index.setdefault(skill_id, len(index)))
            targets.append(index.setdefault(other, len(index)))
            shares.append(share)
    size = len(index)
    moves = sparse.csr_array(
        (np.array(shares, dtype=np.float64), (targets, sources)), shape=(size, size)
    )
    chosen = normalise_seeds(seeds)
    isolated = sorted(chosen.keys() - index.keys())
    waiting = np.zeros(size)
    for skill_id in chosen.keys() - set(isolated):
        waiting[index[skill_id]] = chosen[skill_id]
    settled = np.zeros(size)
    while float(waiting.sum()) > _TOLERANCE:
        settled += settings.restart * waiting
        waiting = (1.0 - settings.restart) * (moves @ waiting)
    scores = {name: float(settled[place]) for name, place in index.items() if settled[place] > 0}
    scores |= {skill_id: settings.restart * chosen[skill_id] for skill_id in isolated}
    whole = sum(scores.values())
    return {skill_id: score / whole for skill_id, score in scores.items()}
