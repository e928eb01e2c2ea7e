"""Cosines of a task with the nearest section of its best candidates, for late interaction."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from skills.record import RevisionKey
from tasks.query.context import QueryContext
from tasks.query.ranking import Ranking

_FITTED = 200
"""First candidates from which the cosines of those without section vectors are predicted."""

_MIN_MEASURED = 10
"""Least number of candidates from which section cosines are predicted by regression."""


def measure_section_cosines(
    context: QueryContext, ranking: Ranking, count: int
) -> dict[RevisionKey, float]:
    """Return the section cosine of each of the first `count` candidates that has any vector.

    Sections are compared for these alone: a thousand candidates have some ten thousand.
    """
    if ranking.vector is None:
        return {}
    index, keys = context.services.index, [hit.key for hit in ranking.hits]
    head, others = keys[:count], keys[count:_FITTED]
    measured = index.get_section_cosines(head, ranking.vector)
    if all(key in measured for key in head if key in ranking.cosines):
        return measured
    measured |= index.get_section_cosines(others, ranking.vector)
    known = {key: ranking.cosines[key] for key in (*head, *others) if key in ranking.cosines}
    return complete_section_cosines(measured, known)


def complete_section_cosines(
    measured: Mapping[RevisionKey, float],
    cosines: Mapping[RevisionKey, tuple[float, float]],
) -> dict[RevisionKey, float]:
    """The section cosine of every candidate that has any vector.

    measured: of the candidates whose sections have vectors. cosines: of the task with the two
    skill vectors. A skill that was just changed has no section vectors for a while. Its section
    cosine is predicted from that of its better skill vector, by the least-squares line over the
    candidates that have both, so that no constant depends on the model. With fewer than
    _MIN_MEASURED of these, all candidates get the cosine of their better skill vector.
    """
    better = {key: max(pair) for key, pair in cosines.items()}
    missing = better.keys() - measured.keys()
    if not missing:
        return dict(measured)
    both = [key for key in measured if key in better]
    if len(both) < _MIN_MEASURED:
        return better
    known = np.array([better[key] for key in both])
    section = np.array([measured[key] for key in both])
    deviation = known - known.mean()
    spread = float(deviation @ deviation)
    slope = float(deviation @ (section - section.mean())) / spread if spread > 1e-9 else 0.0
    return dict(measured) | {
        key: float(section.mean() + slope * (better[key] - known.mean())) for key in missing
    }
