"""Hard negative mining: skills that a query does not need (SkillRouter §4.2).

Negatives come from four sources in the paper's proportions: semantic neighbours, lexical
neighbours, the same category, and random. Skills that may serve as well as a needed one are
filtered by the paper's three layers: the same name, an overlapping body, a near vector.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search.protocol import StoredRevision, Vector
from search.text.tokens import tokenize
from skills.record import ParsedSkill, RevisionKey

SEMANTIC, LEXICAL, CATEGORY, RANDOM = 4, 3, 2, 1
"""Negatives per query from each source (SkillRouter §4.2)."""

NEAREST = 50
"""Nearest neighbours from which semantic negatives are drawn (SkillRouter §4.2)."""

SAME_OVERLAP = 0.5
"""Jaccard overlap of word trigrams from which two bodies count as duplicates."""

SAME_COSINE = 0.8
"""Cosine from which two skills count as duplicates: 18 of 20 such pairs of descriptions were."""

_MAX_OVERLAP_WORDS = 5_000


@dataclass(frozen=True, slots=True)
class MinedNegatives:
    """Ids of negatives, and the number of candidates that each filter layer removed."""

    ids: tuple[str, ...]
    filtered: Mapping[str, int]


class NegativeMiner:
    """Mines negatives from a set of skills. vectors: (2, dimension) for each, of unit length."""

    def __init__(self, revisions: Sequence[StoredRevision], vectors: Mapping[RevisionKey, Vector]):
        self._parsed = {revision.key.skill_id: revision.parsed for revision in revisions}
        self._ids = [revision.key.skill_id for revision in revisions]
        self._places = {skill_id: place for place, skill_id in enumerate(self._ids)}
        self._vectors = np.stack([vectors[revision.key] for revision in revisions])
        self._trigrams: dict[str, frozenset[int]] = {}
        self._categories: dict[str, list[str]] = {}
        for skill_id, parsed in self._parsed.items():
            for category in _categories(skill_id, parsed):
                self._categories.setdefault(category, []).append(skill_id)

    def mine_negatives(
        self,
        positive: str,
        needed: Iterable[str],
        ranked: Sequence[str],
        seed: str,
        near_misses: Sequence[str] = (),
    ) -> MinedNegatives:
        """Negatives of a query, the same for the same seed.

        positive: the needed skill of the list, one of `needed`. ranked: the lexical ranking of the
        query, best first. near_misses: skills that take the places of semantic neighbours, half
        of them at most. Missing negatives of a source are taken from the next one; a small library
        may yield fewer in total.
        """
        generator = random.Random(seed)  # noqa: S311  (not a secret)
        filtered = {"name": 0, "overlap": 0, "vector": 0}
        chosen: dict[str, None] = {}
        needed = set(needed)
        for candidate in near_misses:
            usable = candidate in self._places and candidate not in needed
            if (
                usable
                and len(chosen) < SEMANTIC // 2
                and not self._duplicate_layer(candidate, needed)
            ):
                chosen[candidate] = None
        wanted = 0
        for count, source in (
            (SEMANTIC, self._semantic_neighbours(positive)),
            (LEXICAL, [skill_id for skill_id in ranked if skill_id in self._places]),
            (CATEGORY, self._same_category(positive)),
            (RANDOM, self._ids),
        ):
            wanted += count
            candidates = list(source)
            generator.shuffle(candidates)
            for candidate in candidates:
                if len(chosen) >= wanted:
                    break
                if candidate in needed or candidate in chosen:
                    continue
                layer = self._duplicate_layer(candidate, needed)
                if layer:
                    filtered[layer] += 1
                else:
                    chosen[candidate] = None
        return MinedNegatives(tuple(chosen), filtered)

    def _semantic_neighbours(self, positive: str) -> list[str]:
        place = self._places[positive]
        cosines = (self._vectors * self._vectors[place]).sum(axis=2).max(axis=1)
        order = np.argsort(-cosines, kind="stable")[: NEAREST + 1]
        return [self._ids[other] for other in order.tolist() if other != place]

    def _same_category(self, positive: str) -> list[str]:
        categories = _categories(positive, self._parsed[positive])
        found = (skill_id for name in categories for skill_id in self._categories[name])
        return list(dict.fromkeys(found))

    def _duplicate_layer(self, candidate: str, needed: Iterable[str]) -> str:
        """The filter layer by which a candidate duplicates a needed skill, "" if none."""
        known = [skill_id for skill_id in needed if skill_id in self._places]
        name = _normalised_name(self._parsed[candidate].record.name)
        if any(name == _normalised_name(self._parsed[other].record.name) for other in known):
            return "name"
        vectors = self._vectors[self._places[candidate]]
        for other in known:
            cosines = (vectors * self._vectors[self._places[other]]).sum(axis=1)
            if float(cosines.max()) >= SAME_COSINE:
                return "vector"
        if any(
            _jaccard(self._body(candidate), self._body(other)) >= SAME_OVERLAP for other in known
        ):
            return "overlap"
        return ""

    def _body(self, skill_id: str) -> frozenset[int]:
        if skill_id not in self._trigrams:
            parsed = self._parsed[skill_id]
            words = tokenize(parsed.text(parsed.body_line, len(parsed.lines)))[:_MAX_OVERLAP_WORDS]
            triples = zip(words, words[1:], words[2:], strict=False)
            self._trigrams[skill_id] = frozenset(hash(triple) for triple in triples)
        return self._trigrams[skill_id]


def _categories(skill_id: str, parsed: ParsedSkill) -> tuple[str, ...]:
    """The domain tags of a skill, or its source if it has none."""
    return parsed.record.domain_tags or (f"source {skill_id.partition(':')[0]}",)


def _jaccard(left: frozenset[int], right: frozenset[int]) -> float:
    union = len(left | right)
    return len(left & right) / union if union else 0.0


def _normalised_name(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())
