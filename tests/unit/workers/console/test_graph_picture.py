"""The picture of the graph: names that tell skills apart, and links of the start."""

from __future__ import annotations

from typing import Any

from workers.console.graph.picture import draw_graph, name_skills


def skill(skill_id: str, distance: int = 1) -> dict[str, Any]:
    return {"skill_id": skill_id, "name": skill_id.partition(":")[2], "distance": distance}


def link(source: str, target: str, kind: str, weight: float = 1.0) -> dict[str, Any]:
    return {"source": source, "target": target, "type": kind, "weight": weight}


def test_a_name_that_several_skills_have_is_replaced_by_their_ids() -> None:
    skills = [skill("a:kiln", 0), skill("b:kiln"), skill("b:wheel")]
    assert name_skills(skills) == {"a:kiln": "a:kiln", "b:kiln": "b:kiln", "b:wheel": "wheel"}
    assert [one.label.text for one in draw_graph(skills, []).skills] == [
        "a:kiln",
        "b:kiln",
        "wheel",
    ]


def test_a_skill_without_a_name_is_called_by_its_path() -> None:
    assert name_skills([skill("a:kiln") | {"name": ""}]) == {"a:kiln": "kiln"}


def test_links_of_the_start_are_drawn_over_the_others() -> None:
    skills = [skill("a:x", 0), skill("a:y"), skill("a:z")]
    links = [link("a:y", "a:x", "semantic"), link("a:y", "a:z", "semantic")]
    drawn = draw_graph(skills, links).links
    assert [(one.number, one.is_of_start) for one in drawn] == [(1, False), (0, True)]
