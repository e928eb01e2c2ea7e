"""Every published skill's term vectors, inverted in memory, to find whom a skill may be linked to.

Kept up to date from the catalog's change feed: an edit costs what it changed. 12,000 skills of
100 terms take about 30 MB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graph.link_rules import LinkSettings
from graph.names import normalise_name
from graph.protocol import LinkFacts, SkillGraph

_READ_AT_ONCE = 1000
_ROUNDING = 1e-9
_RECENT_SHARE = 0.02

_Terms = npt.NDArray[np.uint64]
_Floats = npt.NDArray[np.float64]
_Booleans = npt.NDArray[np.bool_]
_Vector = tuple[_Terms, _Floats]


class LinkPool:
    """Cosines of one skill with all published ones, to within rounding.

    What changed lately stands in a small block of its own, so that an edit does not invert the
    whole library again.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._members: dict[str, _Member] = {}
        self._recent: set[str] = set()
        self._blocks = (_Block({}), _Block({}))

    def refresh(self, graph: SkillGraph) -> None:
        """Follow the catalog: read what was published, drop what was withdrawn."""
        changes = graph.changes(self._epoch)
        self._epoch = changes.epoch
        if not changes.pointers:
            return
        changed = sorted(changes.pointers)
        for skill_id in changed:
            self._members.pop(skill_id, None)
        for start in range(0, len(changed), _READ_AT_ONCE):
            read = graph.link_facts(changed[start : start + _READ_AT_ONCE])
            self._members.update({skill_id: _Member(facts) for skill_id, facts in read.items()})
        old, _ = self._blocks
        old.drop(changed)
        self._recent.update(changed)
        if len(self._recent) > _RECENT_SHARE * len(self._members):
            self._recent = set()
            self._blocks = (_Block(self._members), _Block({}))
        else:
            recent = {one: self._members[one] for one in self._recent if one in self._members}
            self._blocks = (old, _Block(recent))

    def near(self, facts: LinkFacts, settings: LinkSettings) -> list[str]:
        """Everyone whom a scored link might join with this skill, whatever their lists hold."""
        asked = _Member(facts)
        found: list[str] = []
        for block in self._blocks:
            cosines = block.cosines(asked)
            may = _alternative(*cosines, settings, _ROUNDING) > 0
            may |= _complement(*cosines, settings, _ROUNDING) > 0
            found += block.named(may)
        return sorted(set(found) - {facts.skill_id})

    def best(self, facts: LinkFacts, settings: LinkSettings) -> list[str]:
        """A few skills among which are all that this one's lists can hold.

        Each list's best K, and whoever ties with the last of them to within rounding.
        """
        asked = _Member(facts)
        parts = [block.cosines(asked) for block in self._blocks]
        body, description, namesake = (np.concatenate(part) for part in zip(*parts, strict=True))
        ids = np.concatenate([block.ids for block in self._blocks])
        own = ids == facts.skill_id
        body[own] = description[own] = 0.0
        chosen = np.zeros(len(ids), dtype=bool)
        for scores in (_alternative, _complement):
            surely = scores(body, description, namesake, settings, -_ROUNDING)
            perhaps = scores(body, description, namesake, settings, _ROUNDING)
            chosen |= (perhaps > 0) & (perhaps >= _last_place(surely, settings) - _ROUNDING)
        return [str(skill_id) for skill_id in ids[chosen]]


class _Member:
    """What the pool keeps of one skill."""

    __slots__ = ("body", "description", "name")

    def __init__(self, facts: LinkFacts) -> None:
        self.name = normalise_name(facts.name)
        self.body = _packed(facts.signature)
        self.description = _packed(facts.description_terms)


class _Block:
    """Some skills by id, their vectors inverted; those dropped are passed over."""

    def __init__(self, members: Mapping[str, _Member]) -> None:
        ordered = sorted(members)
        self.ids: npt.NDArray[np.object_] = np.array(ordered, dtype=object)
        self._place = {skill_id: place for place, skill_id in enumerate(ordered)}
        self._alive = np.ones(len(ordered))
        self._names = np.array([members[skill_id].name for skill_id in ordered], dtype=object)
        self._bodies = _Inverted([members[skill_id].body for skill_id in ordered])
        self._descriptions = _Inverted([members[skill_id].description for skill_id in ordered])

    def drop(self, skill_ids: Sequence[str]) -> None:
        """Have these skills score 0 from now on."""
        self._alive[[self._place[one] for one in skill_ids if one in self._place]] = 0.0

    def cosines(self, asked: _Member) -> tuple[_Floats, _Floats, _Booleans]:
        """Cosines of bodies and of descriptions, and who has the same name; each (skills,)."""
        body = self._bodies.cosines(asked.body) * self._alive
        description = self._descriptions.cosines(asked.description) * self._alive
        return body, description, np.asarray(self._names == asked.name, dtype=bool)

    def named(self, chosen: _Booleans) -> list[str]:
        """The ids of a selection."""
        return [str(skill_id) for skill_id in self.ids[chosen]]


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
    body: _Floats, description: _Floats, namesake: _Booleans, settings: LinkSettings, slack: float
) -> _Floats:
    """The weight of an alternative with each skill, 0 without; thresholds lowered by `slack`."""
    alike = namesake | (body >= settings.renamed - slack)
    near = np.where((description >= settings.alternative - slack) & alike, description, 0.0)
    same = np.where(body >= settings.copy - slack, body, 0.0)
    return np.asarray(np.minimum(np.maximum(near, same), 1.0))


def _complement(
    body: _Floats, description: _Floats, namesake: _Booleans, settings: LinkSettings, slack: float
) -> _Floats:
    """The weight of a complement with each skill, 0 without; as `_alternative`."""
    del namesake
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
