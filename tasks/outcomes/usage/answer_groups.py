"""Grouping of answered queries by the similarity of their tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from search.scoring.cosine_scale import is_default_model
from skills.batches import batches
from skills.outcomes.model import AnsweredQuery
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.usage.task_groups import MAX_TASKS, group_tasks


def group_answers(
    outcomes: OutcomeStore, answers: Sequence[AnsweredQuery], model: str
) -> list[list[AnsweredQuery]]:
    """Return groups of queries with similar tasks, largest first, the most typical query first.

    Of more than `MAX_TASKS` queries, each is compared with those of its part only, since the time
    grows with the square. model: name of the encoder whose vectors the store has.
    """
    found: list[list[AnsweredQuery]] = []
    for part in batches(answers, MAX_TASKS):
        vectors = _read_vectors(outcomes, [one.query_id for one in part], model)
        groups = group_tasks([one.task for one in part], vectors)
        found += [[part[place] for place in group] for group in groups]
    return sorted(found, key=len, reverse=True)


def _read_vectors(
    outcomes: OutcomeStore, query_ids: Sequence[str], model: str
) -> npt.NDArray[np.float32] | None:
    """Return the vectors of queries, zeros for a query without one; None for any encoder but the
    default one, since its cosines have another scale."""
    if not is_default_model(model):
        return None
    found = outcomes.get_vectors(model, query_ids)
    if not found:
        return None
    rows = np.zeros((len(query_ids), len(next(iter(found.values())).values)), dtype=np.float32)
    for place, query_id in enumerate(query_ids):
        if query_id in found:
            rows[place] = found[query_id].values
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
