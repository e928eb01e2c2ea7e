"""Placement and shortening of the labels in a picture of the graph.

Widths are estimates, since the browser chooses the font: those of a wide font, DejaVu Sans.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

HEIGHT = 16.0
GAP = 7.0
"""Space between a circle and its label."""

_WIDE, _NARROW, _CAPITAL, _BROAD, _OTHER = 12.6, 4.9, 9.2, 11.8, 7.8
_MIN_WIDTH = 70.0
"""Minimum room for a shortened label; with less room, a name that does not fit gets no label."""

_ELLIPSIS = "…"
_WORD = re.compile(r"[^-_/:. ]+")


class Circle(NamedTuple):
    """A circle around a point; it stands for a skill."""

    x: float
    y: float
    radius: float


class Label(NamedTuple):
    """A label at a point.

    anchor: its `text-anchor`. is_shown: False if there is no room; it then covers other labels
    while the pointer is over it.
    """

    text: str
    x: float
    y: float
    anchor: str
    is_shown: bool


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


@lru_cache(maxsize=4_096)  # each label is measured several times, whole and shortened
def measure(text: str) -> float:
    """Return the width of a text."""
    return sum(map(_measure_character, text))


@lru_cache(maxsize=4_096)
def _measure_character(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return _WIDE
    if character in "iljtfr.,:;|!'()[]/ -":
        return _NARROW
    if character in "mMwW%@…":
        return _BROAD
    return _CAPITAL if character.isupper() else _OTHER


def place_labels(
    names: Sequence[str], circles: Sequence[Circle], edge: float, middle: int | None
) -> list[Label]:
    """Return a label for each circle. Labels of the largest circles are placed first; a label
    covers no other label and no circle.

    edge: distance of the left and the right edge of the picture from its middle. middle: the circle
    whose label is above it.
    """
    boxes = [_Box(x - r, y - r, x + r, y + r) for x, y, r in circles]
    labels: dict[int, Label] = {}
    rooms: dict[int, float] = {}
    for number in sorted(range(len(circles)), key=lambda one: (-circles[one].radius, one)):
        width = measure(names[number])
        for label, room in _list_places(circles[number], boxes, edge, is_middle=number == middle):
            labels.setdefault(number, label)
            if room >= min(width, _MIN_WIDTH):
                rooms[number] = min(room, width)
                labels[number] = label._replace(is_shown=True)
                boxes.append(_get_box(label, rooms[number]))
                break
    texts = shorten({number: names[number] for number in rooms}, rooms)
    return [
        labels[number]._replace(text=texts.get(number, name)) for number, name in enumerate(names)
    ]


def _list_places(
    circle: Circle, boxes: Sequence[_Box], edge: float, *, is_middle: bool
) -> Iterator[tuple[Label, float]]:
    """Yield possible places of a label, best first, with the width that is free there."""
    if is_middle:
        y = circle.y - circle.radius - HEIGHT / 2
        room = min(_measure_room(circle.x, y, sign, boxes, edge) for sign in (1, -1))
        yield Label("", circle.x, y, "middle", is_shown=False), 2 * room
        return
    outward = 1 if circle.x >= 0 else -1
    for sign in (outward, -outward):
        x = circle.x + sign * (circle.radius + GAP)
        label = Label("", x, circle.y, "start" if sign > 0 else "end", is_shown=False)
        yield label, _measure_room(x, circle.y, sign, boxes, edge)


def _measure_room(x: float, y: float, sign: int, boxes: Sequence[_Box], edge: float) -> float:
    """Return the free width to one side of a point."""
    room = edge - sign * x
    for box in boxes:
        if box.top < y + HEIGHT / 2 and box.bottom > y - HEIGHT / 2:
            near, far = (box.left, box.right) if sign > 0 else (-box.right, -box.left)
            if far > sign * x:
                room = min(room, near - sign * x - GAP / 2)
    return room


def _get_box(label: Label, width: float) -> _Box:
    left = {"start": label.x, "end": label.x - width, "middle": label.x - width / 2}[label.anchor]
    return _Box(left, label.y - HEIGHT / 2, left + width, label.y + HEIGHT / 2)


def shorten(names: Mapping[int, str], rooms: Mapping[int, float]) -> dict[int, str]:
    """Return names shortened to their rooms: cut in the middle, or, if that makes names look alike,
    around the first character in which they differ."""
    shown = {one: _cut(name, rooms[one], 0) for one, name in names.items()}
    for _ in range(3):
        alike: defaultdict[str, list[int]] = defaultdict(list)
        for one, text in shown.items():
            alike[text].append(one)
        for numbers in alike.values():
            if len({names[one] for one in numbers}) > 1:
                prefix = _count_common(names[one] for one in numbers)
                shown |= {one: _cut(names[one], rooms[one], prefix) for one in numbers}
    return shown


def _count_common(names: Iterable[str]) -> int:
    """Return the length of the common beginning of the names."""
    ordered = sorted(names)
    pairs = enumerate(zip(ordered[0], ordered[-1], strict=False))
    return next((place for place, (one, other) in pairs if one != other), len(ordered[0]))


def _cut(name: str, room: float, prefix: int) -> str:
    """Cut a name to fit into a room.

    prefix: length of the beginning that it shares with other names, 0 if none;
    the word after it is kept.
    """
    if measure(name) <= room:
        return name
    if not prefix:
        head = _take(name, room * 0.5 - measure(_ELLIPSIS))
        tail = _take(name[::-1], room - measure(head + _ELLIPSIS))[::-1]
        return f"{head}{_ELLIPSIS}{tail}"
    word = max((one.start() for one in _WORD.finditer(name) if one.start() <= prefix), default=0)
    start = word if measure(name[word : prefix + 1]) < room / 2 else prefix
    rest = _ELLIPSIS + name[start:]
    if measure(rest) <= room:
        return _take(name, room - measure(rest)) + rest
    return _take(rest, room - measure(_ELLIPSIS)) + _ELLIPSIS


def _take(text: str, room: float) -> str:
    """Return the longest beginning of a text that fits."""
    for length in range(len(text)):
        room -= _measure_character(text[length])
        if room < 0:
            return text[:length]
    return text
