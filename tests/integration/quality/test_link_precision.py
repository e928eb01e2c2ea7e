"""How many links are right: labelled pairs of public skills, linked by the present rules.

`tests/data/links.jsonl` holds ids and labels alone. `draw` tells rows drawn at random from what
the present rules gave (`present`) from faults of earlier rules that must not come back
(`earlier`); figures on all links are those of the first.
"""

from __future__ import annotations

import json

import pytest

from graph.links.link_rules import estimate_confidence
from graph.links.linker import Linker
from graph.links.mentions import find_mentions
from graph.local.store import SqliteSkillGraph
from graph.records import LinkType, Publication
from search.skill_analysis import analyse_skill, body_terms, description_terms
from search.text.background_frequencies import load_background
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tests.support.samples.real_skills import ROOT, Collections, needs_collections, skill_file

LABELS = [json.loads(line) for line in (ROOT / "tests/data/links.jsonl").read_text().splitlines()]
FLOORS = {"dependency": 0.85, "workflow": 0.9, "alternative": 0.95, "semantic": 0.5}
"""Least share of a type's labelled links that are right."""

Place = tuple[str, str, str]

pytestmark = needs_collections


def publication(skill_id: str, content: bytes, seq: int) -> Publication:
    source_id, _, path = skill_id.partition(":")
    parsed = parse_skill(path, content)
    analysis, background = analyse_skill(parsed), load_background()
    return Publication(
        RevisionKey(skill_id, seq),
        source_id,
        path,
        "hash",
        parsed.record.name,
        parsed.record.description,
        mentions=find_mentions(parsed),
        body_terms=body_terms(analysis, background),
        description_terms=description_terms(analysis, background),
    )


@pytest.fixture(scope="module")
def linked(real_skills: Collections, tmp_path_factory: pytest.TempPathFactory) -> set[Place]:
    """What the rules link among the labelled skills: (source, target, type)."""
    graph = SqliteSkillGraph(tmp_path_factory.mktemp("links") / "graph.db", writable=True)
    wanted = {row[end] for row in LABELS for end in ("source", "target", "owner") if end in row}
    found = [
        publication(skill_id, skill_file(skill_id, real_skills).read_bytes(), seq)
        for seq, skill_id in enumerate(sorted(wanted), 1)
    ]
    graph.publish(found)
    Linker(graph).relink(graph.list_awaiting_linking(len(found)))
    every = graph.get_links_among([one.key.skill_id for one in found])
    graph.close()
    return {(link.source, link.target, link.type.value) for link in every}


def is_linked(row: dict[str, str], linked: set[Place]) -> bool:
    return (row["source"], row["target"], row["type"]) in linked


@pytest.mark.parametrize("kind", sorted(FLOORS))
def test_links_are_right(kind: str, linked: set[Place]) -> None:
    drawn = [row for row in LABELS if row["type"] == kind and row["draw"] == "present"]
    made = [row for row in drawn if is_linked(row, linked)]
    right = sum(row["label"] == "right" for row in made)
    assert len(made) >= 30
    assert right / len(made) >= FLOORS[kind]


@pytest.mark.parametrize("kind", sorted(FLOORS))
def test_right_links_are_found(kind: str, linked: set[Place]) -> None:
    rights = [row for row in LABELS if row["type"] == kind and row["label"] == "right"]
    assert sum(is_linked(row, linked) for row in rights) / len(rights) >= 0.9


def test_faults_of_earlier_rules_are_gone(linked: set[Place]) -> None:
    faults = [row for row in LABELS if row["draw"] == "earlier"]
    back = [row for row in faults if is_linked(row, linked)]
    assert len(back) / len(faults) <= 0.2


@pytest.mark.parametrize("kind", sorted(FLOORS))
def test_confidence_is_what_was_measured(kind: str) -> None:
    rows = [row for row in LABELS if row["type"] == kind and row["draw"] == "present"]
    share = sum(row["label"] == "right" for row in rows) / len(rows)
    said = [estimate_confidence(LinkType(kind), weight) for weight in (0.3, 0.6, 0.8, 0.9)]
    assert min(said) - 0.1 <= share <= max(said) + 0.1
