"""Links between the passages of one skill."""

from __future__ import annotations

import time

import numpy as np
import pytest

from config.errors import UsageError
from graph.links.passage_links import (
    PassageLink,
    PassageLinkType,
    link_passages,
)
from skills.record import ParsedSkill, Passage, PassageKind, Role, Section, SkillRecord

PARAGRAPH = PassageKind.PARAGRAPH


def skill(*sections: tuple[tuple[str, ...], list[tuple[Role, str]]]) -> ParsedSkill:
    """Sections of one-line passages, each under its heading."""
    lines: list[str] = []
    made: list[Section] = []
    passages: list[Passage] = []
    for index, (path, texts) in enumerate(sections):
        lines.append("#" * len(path) + " " + path[-1])
        heading = len(lines)
        for role, text in texts:
            lines.append(text)
            place = (len(lines), len(lines), 5)
            passages.append(Passage(len(passages), index, PARAGRAPH, role, 1.0, *place))
        made.append(Section(index, path, len(path), heading, heading, len(lines)))
    record = SkillRecord("demo", "A demo", "A demo")
    return ParsedSkill(record, tuple(lines), 1, tuple(made), tuple(passages))


def pairs(links: tuple[PassageLink, ...], kind: PassageLinkType) -> list[tuple[int, int]]:
    return [(link.source, link.target) for link in links if link.type is kind]


DEMO = skill(
    (("Demo",), [(Role.CONCEPT, "Intro.")]),
    (("Demo", "Set up"), [(Role.PRECONDITION, "Install the tool before anything else.")]),
    (
        ("Demo", "Step 1: Read the ledger"),
        [(Role.STEP, "Open it."), (Role.CONCEPT, "**Ledger row**: one booking.")],
    ),
    (
        ("Demo", "Balance check"),
        [(Role.STEP, "Sum each `ledger row` as read in step 1."), (Role.STEP, "Report.")],
    ),
    (("Demo", "Trouble"), [(Role.ERROR_HANDLING, "Run the balance check again.")]),
)


def test_sequence_joins_neighbours() -> None:
    links = link_passages(DEMO)
    assert pairs(links, PassageLinkType.SEQUENCE) == [(n, n + 1) for n in range(6)]
    assert pairs(links, PassageLinkType.SEMANTIC) == []


def test_references_by_heading_step_number_and_term() -> None:
    links = link_passages(DEMO)
    assert pairs(links, PassageLinkType.REFERENCE) == [(4, 2), (4, 3), (6, 4)]
    (heading,) = [link for link in links if (link.source, link.target) == (6, 4)]
    assert "balance check" in heading.evidence


def test_a_precondition_constrains_the_step_that_follows() -> None:
    (condition,) = [link for link in link_passages(DEMO) if link.type is PassageLinkType.CONDITION]
    assert (condition.source, condition.target, condition.weight) == (1, 2, 1.0)
    assert "before" in condition.evidence.lower()


def test_a_precondition_prefers_the_step_of_its_own_section() -> None:
    text = "Node 20 is there."
    one = skill(
        (("D", "First"), [(Role.PRECONDITION, text), (Role.CONCEPT, "x")]),
        (("D", "First", "Do"), [(Role.STEP, "Go.")]),
        (("D", "Then"), [(Role.PRECONDITION, text), (Role.CONCEPT, "x")]),
    )
    assert pairs(link_passages(one), PassageLinkType.CONDITION) == [(0, 2)]


def test_semantic_above_the_threshold_only() -> None:
    angles = np.array([0.0, 0.2, 1.5, 1.5, 3.0, 2.4, 0.7])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    links = link_passages(DEMO, vectors)
    assert pairs(links, PassageLinkType.SEMANTIC) == [
        (0, 1),
        (1, 0),
        (1, 6),
        (2, 3),
        (3, 2),
        (6, 1),
    ]


def test_vectors_of_sections() -> None:
    vectors = np.eye(5, 4, dtype=np.float32)
    vectors[4] = vectors[2]
    assert pairs(link_passages(DEMO, vectors), PassageLinkType.SEMANTIC) == [(2, 6), (6, 2)]
    with pytest.raises(UsageError, match="fit neither"):
        link_passages(DEMO, vectors[:3])


def test_ambiguous_headings_and_terms_are_not_references() -> None:
    one = skill(
        (("D", "Overview"), [(Role.CONCEPT, "a")]),
        (("D", "Two words"), [(Role.CONCEPT, "**Term**: here")]),
        (("D", "E", "Two words"), [(Role.CONCEPT, "**Term**: there")]),
        (("D", "Last"), [(Role.STEP, "See the overview, two words, and `term`.")]),
    )
    assert pairs(link_passages(one), PassageLinkType.REFERENCE) == []


def test_chinese_headings_are_matched() -> None:
    one = skill(
        (("D", "数据清洗"), [(Role.STEP, "删除空行")]),
        (("D", "检查"), [(Role.STEP, "完成数据清洗之后再检查")]),
    )
    assert pairs(link_passages(one), PassageLinkType.REFERENCE) == [(1, 0)]


def test_nothing_of_nothing() -> None:
    assert link_passages(skill()) == ()


def test_many_headings_with_the_same_words_take_linear_time() -> None:
    """Seconds at most of processor time, where quadratic time would take minutes."""
    text = "the " * 300
    many = skill(*((("D", f"the part {n}"), [(Role.STEP, text)]) for n in range(1_000)))
    start = time.thread_time()
    assert len(link_passages(many)) == 999
    assert time.thread_time() - start < 20
