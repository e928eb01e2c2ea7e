"""Diffuse: spread relevance along typed links (Graph of Skills eqs 2–4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from config.settings import DiffusionSettings
from graph.pagerank import ReadAdjacency, normalise_seeds, personalised_pagerank
from graph.records import Adjacency, LinkType
from skills.record import RevisionKey
from tasks.query.ranking import DiffusionStart, RankedSkill, Ranking

_FIXED_PLACES = 2
"""Number of first places that links do not change."""

_HEAD, _TAIL = 2, 29
"""Indexes of the hits whose difference in score is the spread of the ranking."""

_MIN_BONUS = 0.01
"""Minimum gain in score; smaller gains are dropped."""

_REASON_SHARE = 0.1
"""Minimum share of a skill's score before diffusion at which a gain is named as a reason."""


def diffuse(
    ranking: Ranking,
    settings: DiffusionSettings,
    read_rows: ReadAdjacency,
    pointers: Mapping[str, int],
    in_use: Sequence[str] = (),
    epoch: int = 0,
) -> Ranking:
    """Return the ranking by score + weight * spread * mass that arrived over links.

    The mass flows from the best candidates by personalised PageRank. Mass from the restart does not
    count: a seed without incoming links gains nothing. The share that arrives at a skill is not
    rescaled: if a skill has few neighbours, as in a small library, each gets much, and if it has
    many, each gets little, so that the weight follows from the library. The unit is the ranking's
    own spread (the score at place 3 less that at place 30). The first two places stay; skills that
    no candidate stage found are added when they are among the `pointers` (skill_id -> seq). in_use:
    skills that the agent works with; half of the mass flows from them, in equal parts, and the
    other half from the best candidates. epoch: of the catalog before links are read.

    Companions of a seed also get, without diffusion, the share of the seed's past tasks in which
    both helped, times the seed's part of the seeds' mass. This is not divided among them as mass
    is: a task may need all of them.
    """
    hits, seeds = ranking.hits, _weigh_seeds(ranking, settings, in_use)
    if not seeds:
        return ranking
    rows: dict[str, Adjacency] = {}

    def read_and_keep(ids: Sequence[str]) -> Mapping[str, Adjacency]:
        found = read_rows(ids)
        rows.update(found)
        return found

    inflow = personalised_pagerank(seeds, read_and_keep, settings).inflow
    start = DiffusionStart(normalise_seeds(seeds), epoch)
    together = _weigh_companions(start.seeds, rows)
    fixed = {hit.key.skill_id for hit in hits[:_FIXED_PLACES]}
    unit = settings.weight * _spread(hits)
    used = unit * settings.companions
    # Most skills that mass reaches get almost none.
    bonuses = {
        skill_id: bonus
        for skill_id in {**inflow, **together}
        if skill_id not in fixed
        and (
            bonus := _Bonus(unit * inflow.get(skill_id, 0.0), used * together.get(skill_id, 0.0))
        ).whole
        >= _MIN_BONUS
    }
    candidates = [*hits[_FIXED_PLACES:], *_found_over_links(ranking, pointers, bonuses)]
    moved = [_with_bonus(hit, bonuses.get(hit.key.skill_id, _NO_BONUS)) for hit in candidates]
    moved.sort(key=lambda hit: (-hit.score, hit.key))
    hits = (*hits[:_FIXED_PLACES], *_restore_named_formats(hits, moved))
    return replace(ranking, hits=hits, diffusion=start)


def _weigh_seeds(
    ranking: Ranking, settings: DiffusionSettings, in_use: Sequence[str]
) -> dict[str, float]:
    """Return the weights of the skills that mass flows from; none if diffusion would move
    nothing."""
    hits = ranking.hits
    if len(hits) <= _FIXED_PLACES or settings.weight == 0:
        return {}
    seeds = {hit.key.skill_id: hit.score**settings.power for hit in hits[: settings.seeds]}
    if in_use:
        share = sum(seeds.values()) / len(in_use)
        seeds |= {name: seeds.get(name, 0.0) + share for name in in_use}
    return seeds


class _Bonus(NamedTuple):
    """Gain of a skill over links: by diffusion, and as a companion of better matches."""

    diffused: float
    used: float

    @property
    def whole(self) -> float:
        return self.diffused + self.used


_NO_BONUS = _Bonus(0.0, 0.0)


def _weigh_companions(
    seeds: Mapping[str, float], rows: Mapping[str, Adjacency]
) -> dict[str, float]:
    """Return the mass that each companion of a seed gets without diffusion. seeds: shares of 1."""
    found: dict[str, float] = {}
    for skill_id, share in seeds.items():
        for other, kind, forward, weight in rows[skill_id].neighbours if skill_id in rows else ():
            if kind is LinkType.USED_TOGETHER and forward:
                found[other] = found.get(other, 0.0) + share * weight
    return found


def _spread(hits: tuple[RankedSkill, ...]) -> float:
    head = hits[min(_HEAD, len(hits) - 1)].score
    return max(head - hits[min(_TAIL, len(hits) - 1)].score, 0.0)


def _found_over_links(
    ranking: Ranking, pointers: Mapping[str, int], bonuses: Mapping[str, _Bonus]
) -> list[RankedSkill]:
    """Return linked skills that are not hits; they start with the lowest score of any candidate."""
    known = {hit.key.skill_id for hit in ranking.hits}
    start = ranking.least_score
    return [
        RankedSkill(RevisionKey(name, pointers[name]), start, {"least_score": start}, ())
        for name in bonuses
        if name not in known and name in pointers
    ]


def _with_bonus(hit: RankedSkill, bonus: _Bonus) -> RankedSkill:
    if bonus.whole <= 0:
        return hit
    why = hit.why
    if bonus.diffused > _REASON_SHARE * hit.score:
        why = (*why, "linked to better matches")
    parts = {**hit.parts, "diffusion": bonus.diffused}
    if bonus.used > 0:
        parts["used_together"] = bonus.used
        if bonus.used > _REASON_SHARE * hit.score:
            why = (*why, "helped together with better matches in past tasks")
    # Called hundreds of times a query: dataclasses.replace would take a tenth of its time.
    return RankedSkill(
        hit.key, hit.score + bonus.whole, parts, why, hit.named_format, hit.evidence, hit.nearness
    )


def _restore_named_formats(
    before: tuple[RankedSkill, ...], moved: list[RankedSkill]
) -> list[RankedSkill]:
    """Put the owners of formats that the task names back to their places."""
    slots = {
        place: hit.key
        for place, hit in enumerate(before)
        if hit.named_format and place >= _FIXED_PLACES
    }
    held = set(slots.values())
    result = [hit for hit in moved if hit.key not in held]
    by_key = {hit.key: hit for hit in moved}
    for place, key in sorted(slots.items()):
        result.insert(place - _FIXED_PLACES, by_key[key])
    return result
