"""Every published skill's term vectors, inverted in memory, to find whom a skill may be linked to.

Kept up to date from the catalog's change feed: an edit costs what it changed. 12,000 skills of
100 terms take about 15 MB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graph.link_rules import LinkSettings
from graph.protocol import LinkFacts, SkillGraph

_READ_AT_ONCE = 1000
_ROUNDING = 1e-9

_Terms = npt.NDArray[np.uint64]
_Floats = npt.NDArray[np.float64]
_Vector = tuple[_Terms, _Floats]


class LinkPool:
    """Cosines of one skill with all published ones, to within rounding."""

    def __init__(self) -> None:
        self._epoch = 0
        self._vectors: dict[str, tuple[_Vector, _Vector]] = {}
        self._ids: npt.NDArray[np.object_] = np.array([], dtype=object)
        self._bodies = _Inverted([])
        self._descriptions = _Inverted([])

    def refresh(self, graph: SkillGraph) -> None:
        """Follow the catalog: read what was published, drop what was withdrawn."""
        changes = graph.changes(self._epoch)
        self._epoch = changes.epoch
        if not changes.pointers:
            return
        changed = sorted(changes.pointers)
        for skill_id in changed:
            self._vectors.pop(skill_id, None)
        for start in range(0, len(changed), _READ_AT_ONCE):
            read = graph.link_facts(changed[start : start + _READ_AT_ONCE])
            for skill_id, facts in read.items():
                vectors = (_packed(facts.signature), _packed(facts.description_terms))
                self._vectors[skill_id] = vectors
        ordered = sorted(self._vectors)
        self._ids = np.array(ordered, dtype=object)
        self._bodies = _Inverted([self._vectors[skill_id][0] for skill_id in ordered])
        self._descriptions = _Inverted([self._vectors[skill_id][1] for skill_id in ordered])

    def near(self, facts: LinkFacts, settings: LinkSettings) -> list[str]:
        """Everyone whom a scored link might join with this skill, whatever their lists hold."""
        body, description = self._cosines(facts)
        may = _alternative(body, description, settings, _ROUNDING) > 0
        may |= _complement(body, description, settings, _ROUNDING) > 0
        return self._named(may, facts)

    def best(self, facts: LinkFacts, settings: LinkSettings) -> list[str]:
        """A few skills among which are all that this one's lists can hold.

        Each list's best K, and whoever ties with the last of them to within rounding.
        """
        body, description = self._cosines(facts)
        body[self._ids == facts.skill_id] = description[self._ids == facts.skill_id] = 0.0
        chosen = np.zeros(len(body), dtype=bool)
        for scores in (_alternative, _complement):
            surely = scores(body, description, settings, -_ROUNDING)
            perhaps = scores(body, description, settings, _ROUNDING)
            chosen |= (perhaps > 0) & (perhaps >= _last_place(surely, settings) - _ROUNDING)
        return self._named(chosen, facts)

    def _cosines(self, facts: LinkFacts) -> tuple[_Floats, _Floats]:
        body = self._bodies.cosines(_packed(facts.signature))
        return body, self._descriptions.cosines(_packed(facts.description_terms))

    def _named(self, chosen: npt.NDArray[np.bool_], facts: LinkFacts) -> list[str]:
        return [str(other) for other in self._ids[chosen] if other != facts.skill_id]


class _Inverted:
    """Sparse vectors by term: for each term, who has it with what weight."""

    def __init__(self, vectors: Sequence[_Vector]) -> None:
        lengths = [len(terms) for terms, _ in vectors]
        self._size = len(vectors)
        owners = np.repeat(np.arange(len(vectors)), lengths)
        terms = np.concatenate([np.empty(0, np.uint64), *(terms for terms, _ in vectors)])
        weights = np.concatenate([np.empty(0), *(weights for _, weights in vectors)])
        order = np.argsort(terms, kind="stable")
        self._owners = owners[order]
        self._weights = weights[order]
        self._terms, starts = np.unique(terms[order], return_index=True)
        self._starts = np.append(starts, len(terms))

    def cosines(self, vector: _Vector) -> _Floats:
        """The dot product with every vector, float64 (vectors,)."""
        terms, weights = vector
        if not len(terms) or not len(self._terms):
            return np.zeros(self._size)
        places = np.minimum(np.searchsorted(self._terms, terms), len(self._terms) - 1)
        known = self._terms[places] == terms
        spans = [
            slice(self._starts[place], self._starts[place + 1]) for place in places[known].tolist()
        ]
        if not spans:
            return np.zeros(self._size)
        owners = np.concatenate([self._owners[span] for span in spans])
        products = np.concatenate(
            [
                self._weights[span] * weight
                for span, weight in zip(spans, weights[known].tolist(), strict=True)
            ]
        )
        return np.asarray(np.bincount(owners, products, self._size), dtype=np.float64)


def _packed(vector: Mapping[int, float]) -> _Vector:
    terms = np.fromiter(vector.keys(), dtype=np.uint64, count=len(vector))
    weights = np.fromiter(vector.values(), dtype=np.float64, count=len(vector))
    return terms, weights


def _alternative(
    body: _Floats, description: _Floats, settings: LinkSettings, slack: float
) -> _Floats:
    """The weight of an alternative with each skill, 0 without; thresholds lowered by `slack`."""
    near = np.where(description >= settings.alternative - slack, description, 0.0)
    same = np.where(body >= settings.copy - slack, body, 0.0)
    return np.asarray(np.minimum(np.maximum(near, same), 1.0))


def _complement(
    body: _Floats, description: _Floats, settings: LinkSettings, slack: float
) -> _Floats:
    """The weight of a complement with each skill, 0 without; as `_alternative`."""
    may = (
        (body >= settings.complement - slack)
        & (body < settings.copy + slack)
        & (description < settings.different + slack)
    )
    return np.where(may, np.minimum(body, 1.0), 0.0)


def _last_place(scores: _Floats, settings: LinkSettings) -> float:
    """The K-th best positive score, 0 when there are fewer."""
    place = len(scores) - settings.per_type
    return float(np.partition(scores, place)[place]) if place >= 0 else 0.0
