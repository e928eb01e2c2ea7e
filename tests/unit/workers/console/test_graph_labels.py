"""Labels of a graph: as much of each name as there is room for, and none over another."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workers.console.graph.labels import HEIGHT, Circle, Label, measure, place_labels, shorten
from workers.console.graph.picture import Picture, draw_graph

REVIEWS = [f"compliance-review-of-contracts-in-{one}-law" for one in ("german", "french", "dutch")]
LONG = "a-name-of-more-than-twenty-four-letters"


def draw(names: list[str], *, starts: int = 1, mass: float | None = None) -> Picture:
    """The picture of skills that are all linked with the first."""
    skills: list[dict[str, Any]] = [
        {"skill_id": f"lib:{number}", "name": name, "distance": 0 if number < starts else 1}
        for number, name in enumerate(names)
    ]
    if mass is not None:
        for number, skill in enumerate(skills):
            skill["mass"] = [mass / (number + 1), mass / (number + 2)]
    links = [
        {"source": "lib:0", "target": one["skill_id"], "type": "semantic", "weight": 0.5}
        for one in skills[1:]
    ]
    return draw_graph(skills, links)


def get_box(label: Label) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a label."""
    width = measure(label.text)
    left = {"start": label.x, "end": label.x - width, "middle": label.x - width / 2}[label.anchor]
    return left, label.y - HEIGHT / 2, left + width, label.y + HEIGHT / 2


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return (
        one[0] < other[2] - 0.2
        and other[0] < one[2] - 0.2
        and one[1] < other[3] - 0.2
        and other[1] < one[3] - 0.2
    )


def test_a_long_name_is_whole_where_it_has_room() -> None:
    names = ["kiln", LONG, f"{LONG}-too"]
    assert [one.label.text for one in draw(names).skills] == names


@pytest.mark.parametrize("room", [100.0, 160.0, 240.0])
def test_names_that_do_not_fit_are_told_apart(room: float) -> None:
    names = dict(enumerate([*REVIEWS, f"{LONG}-one-a", f"{LONG}-two-a", LONG, "kiln"]))
    shown = shorten(names, dict.fromkeys(names, room))
    assert len(set(shown.values())) == len(names)
    assert shown[6] == "kiln"
    for number, text in shown.items():
        assert measure(text) <= room
        assert all(part in names[number] for part in text.split("…"))


def test_what_differs_in_the_middle_is_kept() -> None:
    names = {
        one: f"examples:community/{language}/pytest-fixtures-and-mocks-of-services"
        for one, language in enumerate(("python", "java"))
    }
    shown = shorten(names, dict.fromkeys(names, 200.0))
    assert "python" in shown[0]
    assert "java" in shown[1]


@given(
    st.lists(st.text("abcm-ü文", min_size=1, max_size=70), min_size=1, max_size=60),
    st.integers(1, 9),
    st.sampled_from([None, 1.0]),
)
@example(["long-name-" * 18, *"abcdefghij"], 1, None)
@settings(deadline=None, max_examples=40)
def test_no_label_covers_another_or_a_circle(
    names: list[str], starts: int, mass: float | None
) -> None:
    picture = draw(names, starts=starts, mass=mass)
    shown = [(one, get_box(one.label)) for one in picture.skills if one.label.is_shown]
    for (_, one), (_, other) in combinations(shown, 2):
        assert not overlap(one, other)
    for skill, box in shown:
        assert picture.left <= box[0]
        assert box[2] <= -picture.left
        for near in picture.skills:
            radius = max(near.radii)
            circle = (near.x - radius, near.y - radius, near.x + radius, near.y + radius)
            assert near is skill or not overlap(box, circle)
    whole = {one.label.text for one in picture.skills if not one.label.is_shown}
    assert whole <= set(names)


def test_the_largest_circles_get_the_room() -> None:
    circles = [Circle(0.0, 0.0, radius) for radius in (3.0, 30.0)]
    labels = place_labels(["small", "large"], circles, 75.0, None)
    assert [one.is_shown for one in labels] == [False, True]
