"""Hard negative mining: skills that a query does not need (SkillRouter §4.2).

Negatives of an encoder come from four sources in the paper's proportions: semantic neighbours,
lexical neighbours, the same category, and random ones of other categories; those of a reranker are
the first of the ranking that it will see (§4.3). Skills that may serve as well as a needed one are
filtered by the paper's three layers: the same name, an overlapping body, a near vector.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from search.protocol import StoredRevision, Vector
from search.text.tokens import tokenize
from skills.record import ParsedSkill, RevisionKey, get_source_id

SEMANTIC, LEXICAL, CATEGORY, RANDOM = 4, 3, 2, 1
"""Number of negatives per query from each source (SkillRouter §4.2)."""

NEAREST = 50
"""Number of nearest neighbours from which semantic negatives are drawn (SkillRouter §4.2)."""

SAME_OVERLAP = 0.5
"""Jaccard overlap of word trigrams from which two bodies count as duplicates."""

SAME_COSINE = 0.8
"""Cosine from which two skills count as duplicates: of 20 such pairs of descriptions, 18 were."""

FILTER_LAYERS = ("name", "overlap", "vector")

_MAX_OVERLAP_WORDS = 5_000
_DRAWN = 50
_ROWS = 256


class NegativeMiner:
    """Mines negatives from a set of skills. vectors: (2, dimension) for each, of unit length.

    counts: of the `candidates` that were judged, and of those that each of FILTER_LAYERS removed.
    """

    def __init__(self, revisions: Sequence[StoredRevision], vectors: Mapping[RevisionKey, Vector]):
        self.counts = Counter[str]()
        self._parsed = {revision.key.skill_id: revision.parsed for revision in revisions}
        self._ids = [revision.key.skill_id for revision in revisions]
        self._places = {skill_id: place for place, skill_id in enumerate(self._ids)}
        self._vectors = np.stack([vectors[revision.key] for revision in revisions])
        self._trigrams: dict[str, npt.NDArray[np.int64]] = {}
        self._neighbours: dict[str, list[str]] = {}
        self._categories: dict[str, list[str]] = {}
        for skill_id, parsed in self._parsed.items():
            for category in _categories(skill_id, parsed):
                self._categories.setdefault(category, []).append(skill_id)

    def mine_negatives(
        self, positive: str, needed: Iterable[str], lexical: Sequence[str], seed: str
    ) -> tuple[str, ...]:
        """Return negatives of a query, the same for the same seed.

        positive: the needed skill of the pair, one of `needed`. lexical: the ranking of the query
        by BM25 alone, best first; the first is left out, as it may well serve. Missing negatives of
        one source are taken from the next one; a small library may yield fewer in total.
        """
        generator = random.Random(seed)
        chosen: dict[str, None] = {}
        needed = set(needed)
        wanted = 0
        for count, source in (
            (SEMANTIC, self._semantic_neighbours(positive)),
            (LEXICAL, [skill_id for skill_id in lexical[1:NEAREST] if skill_id in self._places]),
            (CATEGORY, self._same_category(positive)),
            (RANDOM, self._other_categories(positive, generator)),
        ):
            wanted += count
            candidates = list(source)
            generator.shuffle(candidates)
            self._choose(chosen, candidates, needed, wanted)
        return tuple(chosen)

    def filter_ranking(
        self, needed: Iterable[str], ranked: Iterable[str], count: int
    ) -> tuple[str, ...]:
        """Return the first `count` skills of a ranking that are neither needed
        nor duplicates of one."""
        chosen: dict[str, None] = {}
        self._choose(chosen, (one for one in ranked if one in self._places), set(needed), count)
        return tuple(chosen)

    def _choose(
        self, chosen: dict[str, None], candidates: Iterable[str], needed: set[str], count: int
    ) -> None:
        """Add the first candidates that are neither needed nor duplicates, up to `count` in all."""
        for candidate in candidates:
            if len(chosen) >= count:
                break
            if candidate in needed or candidate in chosen:
                continue
            if not self._is_duplicate(candidate, needed):
                chosen[candidate] = None

    def find_duplicates(self) -> dict[str, tuple[str, ...]]:
        """Return for each skill the others of the same name or with a near description.

        They must not be negatives of each other within a batch.
        """
        names: dict[str, list[int]] = {}
        for place, skill_id in enumerate(self._ids):
            name = _normalised_name(self._parsed[skill_id].record.name)
            names.setdefault(name, []).append(place)
        found: dict[str, tuple[str, ...]] = {}
        descriptions = self._vectors[:, 0].astype(np.float32)
        for start in range(0, len(self._ids), _ROWS):
            near = descriptions[start : start + _ROWS] @ descriptions.T >= SAME_COSINE
            for row, similar in enumerate(near):
                skill_id = self._ids[start + row]
                same = names[_normalised_name(self._parsed[skill_id].record.name)]
                others = {*np.flatnonzero(similar).tolist(), *same} - {start + row}
                if others:
                    found[skill_id] = tuple(self._ids[other] for other in sorted(others))
        return found

    def _semantic_neighbours(self, positive: str) -> list[str]:
        if positive not in self._neighbours:
            place = self._places[positive]
            cosines = np.einsum("nkd,kd->nk", self._vectors, self._vectors[place]).max(axis=1)
            order = np.argsort(-cosines, kind="stable")[: NEAREST + 1]
            self._neighbours[positive] = [
                self._ids[other] for other in order.tolist() if other != place
            ]
        return self._neighbours[positive]

    def _same_category(self, positive: str) -> list[str]:
        categories = _categories(positive, self._parsed[positive])
        found = (skill_id for name in categories for skill_id in self._categories[name])
        return list(dict.fromkeys(found))

    def _other_categories(self, positive: str, generator: random.Random) -> list[str]:
        """Return some skills that share no category with the positive one, drawn at random."""
        own = set(_categories(positive, self._parsed[positive]))
        drawn = generator.sample(self._ids, min(len(self._ids), _DRAWN))
        return [name for name in drawn if own.isdisjoint(_categories(name, self._parsed[name]))]

    def _is_duplicate(self, candidate: str, needed: Iterable[str]) -> bool:
        """Return whether a candidate duplicates a needed skill, by any filter layer; counts it."""
        self.counts["candidates"] += 1
        known = [skill_id for skill_id in needed if skill_id in self._places]
        name = _normalised_name(self._parsed[candidate].record.name)
        if any(name == _normalised_name(self._parsed[other].record.name) for other in known):
            self.counts["name"] += 1
            return True
        if any(
            _jaccard(self._body(candidate), self._body(other)) >= SAME_OVERLAP for other in known
        ):
            self.counts["overlap"] += 1
            return True
        vectors = self._vectors[self._places[candidate]]
        for other in known:
            cosines = (vectors * self._vectors[self._places[other]]).sum(axis=1)
            if float(cosines.max()) >= SAME_COSINE:
                self.counts["vector"] += 1
                return True
        return False

    def _body(self, skill_id: str) -> npt.NDArray[np.int64]:
        """Return the hashes of the distinct word trigrams of a body, ascending."""
        if skill_id not in self._trigrams:
            parsed = self._parsed[skill_id]
            words = tokenize(parsed.text(parsed.body_line, len(parsed.lines)))[:_MAX_OVERLAP_WORDS]
            triples = {hash(triple) for triple in zip(words, words[1:], words[2:], strict=False)}
            self._trigrams[skill_id] = np.array(sorted(triples), np.int64)
        return self._trigrams[skill_id]


def _categories(skill_id: str, parsed: ParsedSkill) -> tuple[str, ...]:
    """Return the domain tags of a skill, or its source if it has none."""
    return parsed.record.domain_tags or (f"source {get_source_id(skill_id)}",)


def _jaccard(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> float:
    shared = len(np.intersect1d(left, right, assume_unique=True))
    union = len(left) + len(right) - shared
    return shared / union if union else 0.0


def _normalised_name(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())
