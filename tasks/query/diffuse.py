"""Diffuse: let relevance flow along typed links (spec §5.4, Graph of Skills eqs 2–4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from config.settings import DiffusionSettings
from graph import pagerank as graph
from graph.pagerank import ReadAdjacency
from skills.record import RevisionKey
from tasks.query.ranking import RankedSkill, Ranking

_KEPT = 2
_HEAD, _TAIL = 2, 29
_LEAST = 0.01


def diffuse(
    ranking: Ranking,
    settings: DiffusionSettings,
    read_rows: ReadAdjacency,
    pointers: Mapping[str, int],
) -> Ranking:
    """Rank again by score + what personalised PageRank from the best candidates brings.

    The share of the mass that reaches a skill counts as it is: where a skill has few neighbours,
    as in a small library, each gets much, and where it has many, each gets little, so that the
    weight follows from the library. It is measured in the ranking's own spread (the score at
    place 3 less that at place 30). The first two places stay; skills that no candidate stage
    found come in over links when they are among the `pointers` (skill_id -> seq).
    """
    hits = ranking.hits
    if len(hits) <= _KEPT or settings.weight == 0:
        return ranking
    seeds = {hit.key.skill_id: hit.score**settings.power for hit in hits[: settings.seeds]}
    result = graph.personalised_pagerank(
        seeds,
        read_rows,
        graph.DiffusionSettings(restart=settings.restart, max_nodes=settings.max_nodes),
    )
    kept = {hit.key.skill_id for hit in hits[:_KEPT]}
    flow = {name: value for name, value in result.scores.items() if name not in kept}
    for seed in seeds.keys() & flow.keys():
        # A seed's own restart mass says nothing about links.
        flow[seed] -= settings.restart * seeds[seed] / sum(seeds.values())
    unit = settings.weight * _spread(hits)
    # Most of those reached get next to nothing.
    bonuses = {name: unit * value for name, value in flow.items() if unit * value >= _LEAST}
    candidates = [*hits[_KEPT:], *_found_over_links(pointers, bonuses, hits)]
    moved = [_with_bonus(hit, bonuses.get(hit.key.skill_id, 0.0)) for hit in candidates]
    moved.sort(key=lambda hit: (-hit.score, hit.key))
    return replace(ranking, hits=(*hits[:_KEPT], *_slots_kept(hits, moved)))


def _spread(hits: tuple[RankedSkill, ...]) -> float:
    head = hits[min(_HEAD, len(hits) - 1)].score
    return max(head - hits[min(_TAIL, len(hits) - 1)].score, 0.0)


def _found_over_links(
    pointers: Mapping[str, int], bonuses: Mapping[str, float], hits: tuple[RankedSkill, ...]
) -> list[RankedSkill]:
    """Skills that links lead to and search did not: they start where the ranking ends."""
    known = {hit.key.skill_id for hit in hits}
    return [
        RankedSkill(RevisionKey(name, pointers[name]), hits[-1].score, {}, ())
        for name in bonuses
        if name not in known and name in pointers
    ]


def _with_bonus(hit: RankedSkill, bonus: float) -> RankedSkill:
    if bonus <= 0:
        return hit
    why = (*hit.why, "linked to better matches") if bonus > 0.1 * hit.score else hit.why
    parts = {**hit.parts, "diffusion": bonus}
    # Hundreds a query: dataclasses.replace would take a tenth of its time.
    return RankedSkill(hit.key, hit.score + bonus, parts, why, hit.named_format)


def _slots_kept(before: tuple[RankedSkill, ...], moved: list[RankedSkill]) -> list[RankedSkill]:
    """Put skills that own a format that the task names back to their place."""
    slots = {
        place: hit.key for place, hit in enumerate(before) if hit.named_format and place >= _KEPT
    }
    held = set(slots.values())
    result = [hit for hit in moved if hit.key not in held]
    by_key = {hit.key: hit for hit in moved}
    for place, key in sorted(slots.items()):
        result.insert(place - _KEPT, by_key[key])
    return result
