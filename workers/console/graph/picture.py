"""The picture of a part of the graph, computed on the server, so that it needs no script.

Skills are on rings around the start, each label on a line of its own; links
are lines between skills.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graph.records import LinkType
from workers.console.graph.labels import GAP, Circle, Label, measure, place_labels
from workers.console.text_display import show_value

_MAX_NAME_CHARACTERS = 200
_LABEL_WIDTH = 190
_MAX_WIDTH = 1_180
"""Width up to which a picture is as wide as its labels need."""
_LINE_HEIGHT = 19
_RING_GAP = 210
_START_RADIUS = 80
_MARGIN = 34
_BEND = 26.0
_RADIUS, _RADIUS_OF_START = 6.0, 11.0
_MIN_RADIUS, _RADIUS_OF_ALL_MASS = 3.0, 34.0


@dataclass(frozen=True, slots=True)
class PictureSkill:
    """A skill of the picture. number: its place in the data. radii: of its circle; of a walk, one
    after each move."""

    number: int
    x: float
    y: float
    radii: tuple[float, ...]
    label: Label
    links: int


@dataclass(frozen=True, slots=True)
class PictureLink:
    """A link of the picture. number: its place in the data. ends: numbers of its skills.
    is_of_start: whether a skill of it has distance 0."""

    number: int
    type: str
    ends: tuple[int, int]
    path: str
    width: float
    is_directed: bool
    is_of_start: bool


class Picture(NamedTuple):
    """The skills and links to draw, within a box around the origin."""

    left: float
    top: float
    width: float
    height: float
    skills: list[PictureSkill]
    links: list[PictureLink]


class _Place(NamedTuple):
    x: float
    y: float


def name_skills(skills: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the label of each skill, by skill_id: its name, or its id if skills share the name."""
    names = {one["skill_id"]: one["name"] or one["skill_id"].partition(":")[2] for one in skills}
    counts = Counter(names.values())
    return {one: name if counts[name] == 1 else one for one, name in names.items()}


def draw_graph(skills: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]]) -> Picture:
    """Return the picture of skills and links, which are in the form of `describe_neighbourhood`,
    the links without duplicates.

    Skills of distance 0 are in the middle. Each ring holds the skills that are one link further
    away, near the skills that they are linked with.
    """
    weights = _weigh_pairs(skills, links)
    rings = _order_rings(skills, weights)
    radii = [_size_circles(skill) for skill in skills]
    places = _place_rings(rings, [max(one) for one in radii])
    circles = [Circle(*places[number], max(radii[number])) for number in range(len(skills))]
    names = [_show_name(one) for one in name_skills(skills).values()]
    middle = rings[0][0] if len(rings[0]) == 1 else None
    edge = _find_edge(circles, names)
    height = 2 * (max((abs(one.y) + one.radius for one in circles), default=0.0) + _MARGIN)
    labels = place_labels(names, circles, edge, middle)
    drawn = [
        PictureSkill(number, *places[number], radii[number], labels[number], len(weights[number]))
        for number in range(len(skills))
    ]
    return Picture(-edge, -height / 2, 2 * edge, height, drawn, _draw_links(skills, links, places))


def _size_circles(skill: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the radius of a skill; for a walk one after each move, the area
    growing with the mass."""
    if "mass" not in skill:
        return (_RADIUS_OF_START if skill["distance"] == 0 else _RADIUS,)
    return tuple(
        round(_MIN_RADIUS + _RADIUS_OF_ALL_MASS * math.sqrt(mass), 1) for mass in skill["mass"]
    )


def _show_name(name: str) -> str:
    return str(show_value(name[:_MAX_NAME_CHARACTERS]))


def _find_edge(circles: Sequence[Circle], names: Sequence[str]) -> float:
    """Return the distance of both edges from the middle: beyond the longest
    label, within limits."""
    outmost = max((abs(one.x) for one in circles), default=0.0)
    ends = (
        abs(one.x) + one.radius + 2 * GAP + measure(name)
        for one, name in zip(circles, names, strict=True)
    )
    needed = max(ends, default=0.0)
    return max(outmost + _LABEL_WIDTH / 2, min(needed, max(outmost + _LABEL_WIDTH, _MAX_WIDTH / 2)))


def _weigh_pairs(
    skills: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]]
) -> list[dict[int, float]]:
    """Return the weight of all links of each skill with each other skill; skills by number."""
    numbers = {skill["skill_id"]: number for number, skill in enumerate(skills)}
    weights: list[dict[int, float]] = [{} for _ in skills]
    for link in links:
        source, target = numbers[link["source"]], numbers[link["target"]]
        for one, other in ((source, target), (target, source)):
            weights[one][other] = weights[one].get(other, 0.0) + link["weight"]
    return weights


def _order_rings(
    skills: Sequence[Mapping[str, Any]], weights: Sequence[Mapping[int, float]]
) -> list[list[int]]:
    """Return the skills of each ring, clockwise from the top; unlinked skills come last."""
    starts = [number for number, skill in enumerate(skills) if skill["distance"] == 0]
    rings, turns = [starts], _spread(starts)
    met = set(starts)
    while ring := {other for one in rings[-1] for other in weights[one]} - met:
        ordered = (
            _chain(ring, weights, starts[0])
            if len(rings) == 1 and len(starts) == 1
            else sorted(ring, key=lambda one: (_aim(weights[one], turns), one))
        )
        rings.append(ordered)
        turns |= _spread(ordered)
        met |= ring
    if left := [number for number in range(len(skills)) if number not in met]:
        rings.append(left)
    return rings


def _spread(ring: Sequence[int]) -> dict[int, float]:
    """Return the place of each skill on its ring, from 0 to 1."""
    return {number: (place + 0.5) / len(ring) for place, number in enumerate(ring)}


def _aim(weights: Mapping[int, float], turns: Mapping[int, float]) -> float:
    """Return the place of the most strongly linked skill that has a place."""
    inner = [other for other in weights if other in turns]
    return turns[max(inner, key=lambda other: weights[other])]


def _chain(ring: set[int], weights: Sequence[Mapping[int, float]], start: int) -> list[int]:
    """Order a ring so that linked skills follow each other: each skill is followed by the one with
    the strongest link to it, else by the one with the strongest link to the start."""
    left = set(ring)
    ordered: list[int] = []
    while left:
        last = ordered[-1] if ordered else start
        near = left & weights[last].keys() or left
        chosen = max(near, key=lambda one: (weights[last].get(one, weights[one][start]), -one))
        ordered.append(chosen)
        left.remove(chosen)
    return ordered


def _place_rings(rings: Sequence[Sequence[int]], radii: Sequence[float]) -> dict[int, _Place]:
    """Return the place of each skill. On each half of a ring, skills are below each other, so that
    each label has a line."""
    places: dict[int, _Place] = {}
    across = down = 0.0
    for number, ring in enumerate(rings):
        if number == 0 and len(ring) == 1:
            places[ring[0]] = _Place(0.0, 0.0)
            continue
        halves = (ring[: math.ceil(len(ring) / 2)], ring[math.ceil(len(ring) / 2) :][::-1])
        rows = [[max(_LINE_HEIGHT, 2 * radii[one] + 4) for one in half] for half in halves]
        across = _START_RADIUS if number == 0 else max(across + _RING_GAP, _RING_GAP * 1.2)
        down = max(down + 2 * _LINE_HEIGHT, (max(map(sum, rows)) + _LINE_HEIGHT) / 2, 60.0)
        for half, heights, sign in zip(halves, rows, (1, -1), strict=True):
            top = 0.0
            for one, height in zip(half, heights, strict=True):
                y = down * ((2 * top + height) / sum(heights) - 1)
                x = sign * across * math.sqrt(1 - (y / down) ** 2)
                places[one] = _Place(round(x, 1), round(y, 1))
                top += height
    return places


def _draw_links(
    skills: Sequence[Mapping[str, Any]],
    links: Sequence[Mapping[str, Any]],
    places: Mapping[int, _Place],
) -> list[PictureLink]:
    """Return links as lines, those of the start on top; links between the same two
    skills are drawn apart."""
    numbers = {skill["skill_id"]: number for number, skill in enumerate(skills)}
    drawn: defaultdict[frozenset[int], int] = defaultdict(int)
    found = []
    for number, link in enumerate(links):
        source, target = numbers[link["source"]], numbers[link["target"]]
        pair = frozenset((source, target))
        nth, drawn[pair] = drawn[pair], drawn[pair] + 1
        bend = _BEND * ((nth + 1) // 2) * (1 if nth % 2 else -1) * (1 if source < target else -1)
        found.append(
            PictureLink(
                number,
                link["type"],
                (source, target),
                _curve(places[source], places[target], bend),
                round(0.8 + 3.4 * link["weight"], 2),
                LinkType(link["type"]).is_directed,
                0 in (skills[source]["distance"], skills[target]["distance"]),
            )
        )
    return sorted(found, key=lambda one: one.is_of_start)


def _curve(start: _Place, end: _Place, bend: float) -> str:
    """Return the path from start to end in two halves, with the mark of its
    direction between them."""
    across, down = end.x - start.x, end.y - start.y
    length = math.hypot(across, down) or 1.0
    middle = _Place(
        (start.x + end.x) / 2 - bend * down / length, (start.y + end.y) / 2 + bend * across / length
    )
    return f"M{start.x:.0f} {start.y:.0f}L{middle.x:.0f} {middle.y:.0f}L{end.x:.0f} {end.y:.0f}"
