"""Neighbourhoods of skills: the skills that links reach, nearest first, within limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graph.protocol import LinkStore
from graph.records import Link, LinkType

MAX_SKILLS = 200
MAX_LINKS = 300
FAN_OUT = 256
"""Maximum links of one skill that are followed: conflicts, then the heaviest."""

Select = Callable[[Sequence[str]], Collection[str]]
"""Callback that returns those of the given skills that may be shown."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Skills around start skills, and the links among them, heaviest first.

    distances: skill_id -> number of links to the nearest start. skills_cut, links_cut: whether a
    limit left out skills or links.
    """

    distances: Mapping[str, int]
    links: Sequence[Link]
    skills_cut: bool = False
    links_cut: bool = False


def find_neighbourhood(
    graph: LinkStore,
    select: Select,
    starts: Sequence[str],
    types: Collection[LinkType],
    depth: int,
    limit: int,
) -> Neighbourhood:
    """Find at most `limit` skills within `depth` links of these types from `starts`.

    The nearest skills are kept; at equal distance, those with the strongest paths. The strength of
    a path is the product of the weights of its links. Needs one round trip to the graph for each
    distance, and one for the links.
    """
    starts = _take(dict.fromkeys(starts, 1.0), select, limit + 1)
    is_cut = len(starts) > limit
    found = dict.fromkeys(starts[:limit], 1.0)
    frontier = list(found)
    for _ in range(depth):
        reached = _follow(graph, frontier, found, types) if frontier else {}
        room = limit - len(found)
        frontier = _take(reached, select, room + 1)
        is_cut |= len(frontier) > room
        frontier = frontier[:room]
        found |= {one: reached[one] for one in frontier}
    linked = link_skills(graph, select, starts, list(found), types)
    return replace(linked, skills_cut=is_cut)


def link_skills(
    graph: LinkStore,
    select: Select,
    starts: Sequence[str],
    skill_ids: Sequence[str],
    types: Collection[LinkType],
) -> Neighbourhood:
    """Return the links of these types among skills, and the skills that they reach from `starts`.

    At most MAX_LINKS are kept: first the links by which skills are reached, then the heaviest. A
    link is left out if its owner may not be shown.
    """
    links = [one for one in graph.get_links_among(skill_ids) if one.type in types]
    owners = {one.owner for one in links}.difference(skill_ids)
    shown = {*skill_ids, *select(sorted(owners))} if owners else set(skill_ids)
    links = sorted((one for one in links if one.owner in shown), key=_by_weight)
    known = set(skill_ids)
    distances, paths = _measure_distances([one for one in starts if one in known], links)
    links = [one for one in links if one.source in distances]
    kept = sorted(links, key=lambda one: one not in paths)[:MAX_LINKS]
    return Neighbourhood(distances, sorted(kept, key=_by_weight), links_cut=len(links) > MAX_LINKS)


def _follow(
    graph: LinkStore,
    frontier: Sequence[str],
    found: Mapping[str, float],
    types: Collection[LinkType],
) -> dict[str, float]:
    """Return the unvisited neighbours of a frontier -> strength of the strongest path to each."""
    reached: dict[str, float] = {}
    for skill_id, row in graph.get_adjacency(frontier, FAN_OUT).items():
        for one in row.neighbours:
            if one.type in types and one.skill_id not in found:
                strength = found[skill_id] * one.weight
                reached[one.skill_id] = max(reached.get(one.skill_id, 0.0), strength)
    return reached


def _take(strengths: Mapping[str, float], select: Select, count: int) -> list[str]:
    """Return the strongest `count` skills that may be shown.

    Calls `select` in batches, strongest skills first, until there are enough.
    """
    ordered = sorted(strengths, key=lambda one: -strengths[one])
    taken: list[str] = []
    for first in range(0, len(ordered), MAX_SKILLS):
        some = ordered[first : first + MAX_SKILLS]
        allowed = select(some)
        taken += (one for one in some if one in allowed)
        if len(taken) >= count:
            break
    return taken[:count]


def _measure_distances(
    starts: Iterable[str], links: Iterable[Link]
) -> tuple[dict[str, int], set[Link]]:
    """Return the distance of each reachable skill, and the links by which skills were reached."""
    ends: defaultdict[str, list[tuple[str, Link]]] = defaultdict(list)
    for link in links:
        ends[link.source].append((link.target, link))
        ends[link.target].append((link.source, link))
    distances = dict.fromkeys(starts, 0)
    paths: set[Link] = set()
    for skill_id in (queue := list(distances)):
        for other, link in ends[skill_id]:
            if other not in distances:
                distances[other] = distances[skill_id] + 1
                paths.add(link)
                queue.append(other)
    return distances, paths


def _by_weight(link: Link) -> tuple[float | str, ...]:
    return (-link.weight, link.source, link.target, link.type, link.owner)
