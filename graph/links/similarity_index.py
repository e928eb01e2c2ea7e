"""In-memory inverted index of all published skills' term vectors, to score one skill against all.

It follows the catalog's change feed, so that the cost of an edit depends on what it changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graph.links.link_rules import (
    SIMILARITY_LINK_TYPES,
    WEIGHT_STEPS,
    Booleans,
    Floats,
    LinkSettings,
    QuantisedVector,
    ScoredLink,
    quantise_vector,
    score_pairs,
    similarity_evidence,
)
from graph.protocol import LinkStore, SkillGraph
from graph.records import LinkFeatures, LinkType
from graph.skill_names import may_be_same_skill, normalise_name

_READ_AT_ONCE = 1000
_RECENT_SHARE = 0.02

_EntryWeights = dict[LinkType, float]
"""By type, the weight that a link must have to enter a skill's list; 0 while there is room."""


class SimilarityIndex:
    """Scores one skill against all published ones, and finds the lists that it would enter.

    Recent changes are in a small block, so that an edit does not rebuild the whole index.
    """

    def __init__(self, settings: LinkSettings) -> None:
        self._settings = settings
        self._epoch = 0
        self._members: dict[str, _Member] = {}
        self._entry_weights: dict[str, _EntryWeights] = {}
        self._recent: set[str] = set()
        self._blocks = (_Block({}, {}), _Block({}, {}))

    def refresh(self, graph: SkillGraph) -> None:
        """Apply the catalog's changes: read what was published, drop what was withdrawn."""
        changes = graph.get_changes_since(self._epoch)
        self._epoch = changes.epoch
        if changes.relinked:
            self._read_entry_weights(graph, sorted(changes.relinked))
        if changes.pointers:
            self._read_members(graph, sorted(changes.pointers))

    def _read_members(self, graph: LinkStore, changed: Sequence[str]) -> None:
        for skill_id in changed:
            self._members.pop(skill_id, None)
        for start in range(0, len(changed), _READ_AT_ONCE):
            read = graph.get_link_features(changed[start : start + _READ_AT_ONCE])
            self._members.update(
                {skill_id: _Member(features) for skill_id, features in read.items()}
            )
        old, _ = self._blocks
        old.drop(changed)
        self._recent.update(changed)
        if len(self._recent) > _RECENT_SHARE * len(self._members):
            self._recent = set()
            self._blocks = (_Block(self._members, self._entry_weights), _Block({}, {}))
        else:
            recent = {one: self._members[one] for one in self._recent if one in self._members}
            self._blocks = (old, _Block(recent, self._entry_weights))

    def score(self, features: LinkFeatures) -> SimilarityScores:
        """Score this skill against every other one."""
        asked = _Member(features)
        parts = [block.cosines(asked, features.skill_id) for block in self._blocks]
        body, description, namesake = (np.concatenate(part) for part in zip(*parts, strict=True))
        ids = np.concatenate([block.ids for block in self._blocks])
        entry_weights = {
            kind: np.concatenate([block.entry_weights[kind] for block in self._blocks])
            for kind in SIMILARITY_LINK_TYPES
        }

        def is_kin(place: int) -> bool:
            return may_be_same_skill(asked.name, self._members[ids[place]].name)

        weights = score_pairs(body, description, namesake, is_kin, self._settings)
        return SimilarityScores(
            ids, body, description, weights, entry_weights, self._settings, self._places
        )

    def _places(self, skill_ids: Iterable[str]) -> list[int]:
        """Indices of skills in the arrays of `score`."""
        old, recent = self._blocks
        found = []
        for skill_id in skill_ids:
            place = recent.place(skill_id)
            if place is not None:
                found.append(len(old.ids) + place)
            elif (place := old.place(skill_id)) is not None:
                found.append(place)
        return found

    def mask(self, skill_ids: Iterable[str]) -> Booleans:
        """A mask of these skills over the arrays of `score`."""
        mask = np.zeros(sum(len(block.ids) for block in self._blocks), dtype=bool)
        mask[self._places(skill_ids)] = True
        return mask

    def _read_entry_weights(self, graph: LinkStore, skill_ids: Sequence[str]) -> None:
        """Read the entry weights of skills whose links changed."""
        full = {
            kind: graph.min_link_weight(kind, self._settings.max_links(kind), skill_ids)
            for kind in SIMILARITY_LINK_TYPES
        }
        for skill_id in skill_ids:
            entry_weights = {kind: full[kind].get(skill_id, 0.0) for kind in SIMILARITY_LINK_TYPES}
            self._entry_weights[skill_id] = entry_weights
            for block in self._blocks:
                block.set_entry_weights(skill_id, entry_weights)


@dataclass(frozen=True, slots=True)
class SimilarityScores:
    """Scores of one skill against all others; every array is (skills,), in the order of `ids`."""

    ids: npt.NDArray[np.object_]
    body: Floats
    description: Floats
    weights: Mapping[LinkType, Floats]
    entry_weights: Mapping[LinkType, Floats]
    settings: LinkSettings
    places: Callable[[Iterable[str]], list[int]]

    def best(self, more: int = 0) -> list[ScoredLink]:
        """Candidates for the skill's lists: the best K of each type and `more`, with ties."""
        found: list[ScoredLink] = []
        for kind, weights in self.weights.items():
            last = _last_place(weights, self.settings.max_links(kind) + more)
            found += self._scored(kind, (weights > 0) & (weights >= last))
        return found

    def most_alike(self, limit: int) -> list[str]:
        """The skills whose bodies have the highest cosines, from that of a complement on, best
        first; ties by skill_id."""
        last = max(_last_place(self.body, limit), self.settings.complement_body_cosine)
        places = np.flatnonzero(self.body >= last).tolist()
        ranked = sorted((-float(self.body[place]), str(self.ids[place])) for place in places)
        return [skill_id for _, skill_id in ranked[:limit]]

    def links_entering(self, excluded: Booleans) -> dict[str, ScoredLink]:
        """By skill, the link with which this one would enter, stay in or tie with its list."""
        return {
            one.skill_id: one
            for kind, weights in self.weights.items()
            for one in self._scored(
                kind, (weights > 0) & (weights >= self.entry_weights[kind]) & ~excluded
            )
        }

    def links_with(self, skill_ids: Iterable[str]) -> dict[str, ScoredLink]:
        """By skill, the link with it; skills without one are left out."""
        chosen = np.zeros(len(self.ids), dtype=bool)
        chosen[self.places(skill_ids)] = True
        return {
            one.skill_id: one
            for kind, weights in self.weights.items()
            for one in self._scored(kind, (weights > 0) & chosen)
        }

    def _scored(self, kind: LinkType, chosen: Booleans) -> list[ScoredLink]:
        return [
            ScoredLink(
                kind,
                float(self.weights[kind][place]),
                str(self.ids[place]),
                similarity_evidence(self.body[place], self.description[place]),
            )
            for place in np.flatnonzero(chosen).tolist()
        ]


class _Member:
    """Name and quantised vectors of one skill."""

    __slots__ = ("body", "description", "name")

    def __init__(self, features: LinkFeatures) -> None:
        self.name = normalise_name(features.name)
        self.body = quantise_vector(features.body_terms)
        self.description = quantise_vector(features.description_terms)


class _Block:
    """Part of the index: the inverted vectors of some skills; dropped ones score 0.

    entry_weights: by type, float64 (skills,).
    """

    def __init__(
        self, members: Mapping[str, _Member], entry_weights: Mapping[str, _EntryWeights]
    ) -> None:
        ordered = sorted(members)
        self.ids: npt.NDArray[np.object_] = np.array(ordered, dtype=object)
        self.entry_weights = {
            kind: np.array(
                [entry_weights[one][kind] if one in entry_weights else 0.0 for one in ordered]
            )
            for kind in SIMILARITY_LINK_TYPES
        }
        self._place = {skill_id: place for place, skill_id in enumerate(ordered)}
        self._alive = np.ones(len(ordered))
        self._named: defaultdict[str, list[int]] = defaultdict(list)
        for place, skill_id in enumerate(ordered):
            self._named[members[skill_id].name].append(place)
        self._bodies = _Inverted([members[skill_id].body for skill_id in ordered])
        self._descriptions = _Inverted([members[skill_id].description for skill_id in ordered])

    def drop(self, skill_ids: Sequence[str]) -> None:
        """Make these skills score 0."""
        self._alive[[self._place[one] for one in skill_ids if one in self._place]] = 0.0

    def set_entry_weights(self, skill_id: str, entry_weights: _EntryWeights) -> None:
        """Set the entry weights of a skill, if it is in this block."""
        place = self._place.get(skill_id)
        if place is not None:
            for kind, entry_weight in entry_weights.items():
                self.entry_weights[kind][place] = entry_weight

    def place(self, skill_id: str) -> int | None:
        """Index of a skill in `ids`, dropped or not; None if it is not in this block."""
        return self._place.get(skill_id)

    def cosines(self, asked: _Member, skill_id: str) -> tuple[Floats, Floats, Booleans]:
        """Cosines of bodies and of descriptions, and the mask of equal names; each (skills,).

        The skill's cosine with itself is 0.
        """
        body = self._bodies.cosines(asked.body) * self._alive
        description = self._descriptions.cosines(asked.description) * self._alive
        namesake = np.zeros(len(self.ids), dtype=bool)
        namesake[self._named.get(asked.name, [])] = True
        own = self._place.get(skill_id)
        if own is not None:
            body[own] = description[own] = 0.0
        return body, description, namesake


class _Inverted:
    """Sparse vectors by term: for each term, the vectors that hold it, with weights."""

    def __init__(self, vectors: Sequence[QuantisedVector]) -> None:
        lengths = [len(terms) for terms, _ in vectors]
        self._size = len(vectors)
        owners = np.repeat(np.arange(len(vectors), dtype=np.int32), lengths)
        terms = np.concatenate([np.empty(0, np.uint64), *(terms for terms, _ in vectors)])
        weights = np.concatenate([np.empty(0, np.uint16), *(weights for _, weights in vectors)])
        order = np.argsort(terms, kind="stable")
        self._owners = owners[order]
        self._weights = weights[order]
        self._terms, starts = np.unique(terms[order], return_index=True)
        self._starts = np.append(starts, len(terms))

    def cosines(self, vector: QuantisedVector) -> Floats:
        """The dot product with every vector, float64 (vectors,), exact."""
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
                self._weights[span] * float(weight)
                for span, weight in zip(spans, weights[known].tolist(), strict=True)
            ]
        )
        return np.bincount(owners, products, self._size) / WEIGHT_STEPS**2


def _last_place(weights: Floats, most: int) -> float:
    """The K-th highest weight, 0 when there are fewer."""
    place = len(weights) - most
    return float(np.partition(weights, place)[place]) if place >= 0 else 0.0
