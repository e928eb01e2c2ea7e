"""In-memory index of all published skills' term vectors, to score one skill against all others.

It follows the catalog's change feed, so the cost of an update depends on the number of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np

from graph.links.audiences import ONE_AUDIENCE, Audiences
from graph.links.link_rules import (
    SIMILARITY_LINK_TYPES,
    Booleans,
    Floats,
    LinkSettings,
    score_pairs,
    similarity_evidence,
)
from graph.links.similarity_block import MAX_ROWS, Block, ListKey, Member, Rows, Texts
from graph.protocol import LinkStore, SkillGraph
from graph.records import Link, LinkFeatures, LinkType
from graph.skill_names import may_be_same_skill
from skills.batches import batches

_READ_AT_ONCE = 250
"""Skills in a batch, which takes about 20 ms; larger batches are hardly faster."""

_MIN_ROWS = 64
_GROWTH = 4
"""A block is merged with a new block if it has fewer rows than _MIN_ROWS, or than _GROWTH times
those of the new one."""


class SimilarityIndex:
    """Scores one skill against all published skills, and finds the lists that it would enter.

    Skills are in blocks of up to `MAX_ROWS`. A new block is merged with blocks that are less than
    `_GROWTH` times as large, so that blocks are few and each skill is merged only a few times.
    """

    def __init__(self, settings: LinkSettings, audiences: Audiences = ONE_AUDIENCE) -> None:
        self._settings = settings
        self.audiences = audiences
        self._min_cosine = min(settings.semantic_body_cosine, settings.alternative_body_cosine)
        self._epoch = 0
        self._unread_lists: set[str] = set()
        self._unread_skills: set[str] = set()
        self._blocks: list[Block] = []
        self._entry_weights: dict[ListKey, dict[str, float]] = {}

    def refresh(self, graph: SkillGraph, before_batch: Callable[[], None] = lambda: None) -> None:
        """Apply the catalog's changes: read published skills, drop withdrawn skills.

        before_batch: called before each batch of skills. The next call goes on where an error
        stopped this one.
        """
        changes = graph.get_changes_since(self._epoch)
        self._unread_lists |= changes.relinked
        self._unread_skills |= changes.pointers.keys()
        self._epoch = changes.epoch
        for unread, read in (
            (self._unread_lists, self._read_entry_weights),
            (self._unread_skills, self._read_members),
        ):
            for some in batches(sorted(unread), _READ_AT_ONCE):
                before_batch()
                read(graph, some)
                unread.difference_update(some)

    def _read_members(self, graph: LinkStore, changed: Sequence[str]) -> None:
        for block in self._blocks:
            for skill_id in changed:
                block.drop(skill_id)
        read = graph.get_link_features(changed)
        new = Block.of([Member(features) for features in read.values()])
        for key, entry_weights in self._entry_weights.items():
            for skill_id in entry_weights.keys() & read.keys():
                new.set_entry_weight(key, skill_id, entry_weights[skill_id])
        self._blocks.append(new)
        self._merge_blocks()

    def _merge_blocks(self) -> None:
        """Merge the last block with small blocks, and with blocks of mostly dropped rows."""
        last = self._blocks.pop()
        merged, size = [last], last.live
        for block in sorted(self._blocks, key=lambda one: one.live):
            is_small = block.live < max(_MIN_ROWS, _GROWTH * size)
            if (is_small or 2 * block.live < len(block.ids)) and size + block.live <= MAX_ROWS:
                merged.append(block)
                size += block.live
        self._blocks = [block for block in self._blocks if block not in merged]
        if size:
            self._blocks.append(Block.merge(merged) if len(merged) > 1 else last)

    def score(self, features: LinkFeatures) -> SimilarityScores:
        """Score this skill against all others; skills without a link to it may be left out."""
        asked = Member(features)
        audience = self.audiences.of(features.skill_id)
        found: list[tuple[Block, Rows]] = []
        none = np.zeros(0)
        parts: list[tuple[Floats, Floats, Booleans]] = [(none, none, none > 0)]
        for block in self._blocks:
            rows, cosines, description_cosines, namesakes = block.find(asked, self._min_cosine)
            found.append((block, rows))
            parts.append((cosines, description_cosines, namesakes))
        body, description, namesake = (np.concatenate(part) for part in zip(*parts, strict=True))
        no_text = np.zeros(0, dtype=object)
        ids = np.concatenate([no_text, *(block.ids[rows] for block, rows in found)])
        names = np.concatenate([no_text, *(block.names[rows] for block, rows in found)])
        entry_weights = {
            kind: np.concatenate(
                [
                    none,
                    *(block.get_entry_weights((kind, audience))[rows] for block, rows in found),
                ]
            )
            for kind in SIMILARITY_LINK_TYPES
        }

        def is_kin(place: int) -> bool:
            return may_be_same_skill(asked.name, names[place])

        weights = score_pairs(body, description, namesake, is_kin, self._settings)
        return SimilarityScores(
            features.skill_id,
            ids,
            body,
            description,
            weights,
            entry_weights,
            self._settings,
            found,
            self.audiences,
        )

    def _read_entry_weights(self, graph: LinkStore, skill_ids: Sequence[str]) -> None:
        """Read the minimum weights of links to enter these skills' lists; 0 for lists with room."""
        read = self._find_entry_weights(graph, skill_ids)
        for key in read.keys() | self._entry_weights.keys():
            known, now = self._entry_weights.setdefault(key, {}), read.get(key, {})
            for skill_id in skill_ids:
                known.pop(skill_id, None)
                for block in self._blocks:
                    block.set_entry_weight(key, skill_id, now.get(skill_id, 0.0))
            known |= now

    def _find_entry_weights(
        self, graph: LinkStore, skill_ids: Sequence[str]
    ) -> dict[ListKey, dict[str, float]]:
        """Return list -> skill -> lowest weight in the list; lists with room are left out."""
        limits = {kind: self._settings.max_links(kind) for kind in SIMILARITY_LINK_TYPES}
        if not self.audiences:
            return {
                (kind, ""): graph.min_link_weight(kind, limit, skill_ids)
                for kind, limit in limits.items()
            }
        found: dict[ListKey, dict[str, float]] = {}
        for owner, links in graph.get_owned_links(skill_ids).items():
            lists: dict[ListKey, list[float]] = {}
            for link in links:
                if link.type in limits and link.source == owner:
                    key = (link.type, self.audiences.of(link.target))
                    lists.setdefault(key, []).append(link.weight)
            for key, weights in lists.items():
                if len(weights) >= limits[key[0]]:
                    found.setdefault(key, {})[owner] = min(weights)
        return found


@dataclass(frozen=True, slots=True)
class SimilarityScores:
    """Scores of a skill, `owner`, against others; every array is (skills,), in the order of `ids`.

    weights: by type, the weight of the link with each; 0 for no link. entry_weights: by type, the
    minimum weight to enter the list of each for the audience of the scored skill; 0 while the list
    has room. found: blocks with their rows, in this order.
    """

    owner: str
    ids: Texts
    body: Floats
    description: Floats
    weights: Mapping[LinkType, Floats]
    entry_weights: Mapping[LinkType, Floats]
    settings: LinkSettings
    found: Sequence[tuple[Block, Rows]]
    audiences: Audiences

    def best(self, more: int = 0) -> list[Link]:
        """Return candidates for the skill's lists.

        For each type and audience, these are the best K + `more` by `rank_key`.
        """
        found: list[Link] = []
        for kind, weights in self.weights.items():
            count = self.settings.max_links(kind) + more
            for places in self._split(np.flatnonzero(weights > 0)):
                last = _kth_highest(weights[places], count)
                above = places[weights[places] > last].tolist()
                # A skill may have thousands of copies, which all tie.
                tied = places[weights[places] == last]
                by_id = zip(self.ids[tied].tolist(), tied.tolist(), strict=True)
                first = [place for _, place in nsmallest(count - len(above), by_id)]
                found += self._scored(kind, [*above, *first])
        return found

    def _split(self, places: Rows) -> list[Rows]:
        """Split places by audience."""
        if not self.audiences:
            return [places]
        return [places[some] for some in self.audiences.split(self.ids[places].tolist())]

    def most_alike(self, limit: int) -> list[str]:
        """Return the skills with the highest cosines of bodies, best first, ties by skill_id.

        The cosine is at least the minimum of a semantic link.
        """
        last = max(_kth_highest(self.body, limit), self.settings.semantic_body_cosine)
        places = np.flatnonzero(self.body >= last).tolist()
        ranked = sorted((-float(self.body[place]), self.ids[place]) for place in places)
        return [skill_id for _, skill_id in ranked[:limit]]

    def links_entering(self, excluded: Collection[str]) -> dict[str, Link]:
        """Return skill -> link with which this skill enters, stays in or ties with its list."""
        found: list[Link] = []
        for kind, weights in self.weights.items():
            places = np.flatnonzero((weights > 0) & (weights >= self.entry_weights[kind]))
            by_id = zip(self.ids[places].tolist(), places.tolist(), strict=True)
            found += self._scored(kind, [place for one, place in by_id if one not in excluded])
        return {one.target: one for one in found}

    def links_with(self, skill_ids: Iterable[str]) -> dict[str, Link]:
        """Return skill -> link with it; skills without a link are left out."""
        places = [place for one in skill_ids if (place := self._find_place(one)) is not None]
        found: list[Link] = []
        for kind, weights in self.weights.items():
            found += self._scored(kind, (place for place in places if weights[place] > 0))
        return {one.target: one for one in found}

    def _find_place(self, skill_id: str) -> int | None:
        first = 0
        for block, rows in self.found:
            place = block.place_in(rows, skill_id)
            if place is not None:
                return first + place
            first += len(rows)
        return None

    def _scored(self, kind: LinkType, places: Iterable[int]) -> list[Link]:
        return [
            Link(
                self.owner,
                self.owner,
                self.ids[place],
                kind,
                float(self.weights[kind][place]),
                similarity_evidence(self.body[place], self.description[place]),
            )
            for place in places
        ]


def _kth_highest(weights: Floats, k: int) -> float:
    """Return the `k`-th highest weight, 0 if there are fewer weights."""
    place = len(weights) - k
    return float(np.partition(weights, place)[place]) if place >= 0 else 0.0
