"""Links as pages list them: one for each pair, type and direction."""

from __future__ import annotations

from typing import Any

from workers.console.links import merge_links


def link(source: str, target: str, kind: str, weight: float = 1.0) -> dict[str, Any]:
    return {"source": source, "target": target, "type": kind, "weight": weight}


def test_a_link_without_direction_is_one_both_ways() -> None:
    links = [link("a:x", "a:y", "semantic", 0.9), link("a:y", "a:x", "semantic", 0.8)]
    assert merge_links(links) == links[:1]


def test_links_of_other_types_and_directions_are_kept() -> None:
    links = [
        link("a:x", "a:y", "dependency"),
        link("a:y", "a:x", "dependency"),
        link("a:y", "a:x", "semantic"),
    ]
    assert merge_links(links) == links


def test_a_directed_link_that_both_skills_own_is_one() -> None:
    links = [link("a:x", "a:y", "workflow"), link("a:x", "a:y", "workflow", 0.5)]
    assert merge_links(links) == links[:1]
