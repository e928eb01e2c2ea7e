"""Method F: scores, the cutoff and line ranges, on small skills."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skills.passages import (
    DEFAULT_WEIGHTS,
    MAX_EMBEDDED_CHARACTERS,
    get_line_ranges,
    passage_texts,
    passage_utilities,
    required_gaps,
    score_passages,
    section_texts,
    select_passages,
)
from skills.token_count import count_tokens
from tests.support.samples.passages import parse, passage_input_of, query_of

KITCHEN = """# Kitchen

Bread at home.

## Sourdough

Feed the starter each evening.

### Baking

1. Heat the oven to 240 degrees.
2. Score the loaf and bake it.

## Cleaning

Scrape the bench with warm water:

- no soap on wood
- dry the steel

## Storage

Keep flour in a jar.
""".splitlines()


def test_section_texts_leave_the_title_out() -> None:
    texts = section_texts(parse(KITCHEN))
    assert texts[0].strip() == "Bread at home."
    assert texts[0].startswith("\n")
    assert texts[2].startswith("Sourdough > Baking\n")
    assert "## " not in texts[1].split("\n", 1)[0]
    assert passage_texts(parse(KITCHEN))[-1] == "Storage\nKeep flour in a jar."


def test_paths_are_whole_without_a_single_title() -> None:
    assert section_texts(parse(["## Only", "text"]))[0].startswith("Only\n")
    assert section_texts(parse(["# One", "a", "# Two", "b"]))[1].startswith("Two\n")


def test_texts_are_cut() -> None:
    assert len(section_texts(parse(["# T", "", "word " * 2000]))[0]) == MAX_EMBEDDED_CHARACTERS


@pytest.mark.parametrize("dense", [True, False])
def test_what_is_asked_scores_best(dense: bool) -> None:
    skill = passage_input_of(parse(KITCHEN), dense=dense)
    scores = score_passages(query_of("heat the oven and bake", dense=dense), skill, DEFAULT_WEIGHTS)
    best = skill.parsed.passages[int(scores.passages.argmax())]
    assert skill.parsed.sections[best.section].heading_path[-1] == "Baking"
    assert scores.dense is dense
    assert scores.sections.shape == (len(skill.parsed.sections),)


def test_vectors_are_used_only_when_both_sides_have_them() -> None:
    skill = passage_input_of(parse(KITCHEN))
    assert not score_passages(query_of("oven", dense=False), skill, DEFAULT_WEIGHTS).dense


def test_a_narrow_gap_keeps_less_than_a_wide_one() -> None:
    skill = passage_input_of(parse(KITCHEN))
    scores = score_passages(query_of("dry the steel bench"), skill, DEFAULT_WEIGHTS)
    narrow, wide = select_passages(scores, skill, 0.0), select_passages(scores, skill, 100.0)
    assert len(narrow) >= 1
    assert wide == list(range(len(skill.parsed.passages)))
    assert set(narrow) < set(wide)


def test_lines_bring_headings_and_lead_ins() -> None:
    parsed = parse(KITCHEN)
    item = next(
        p for p in parsed.passages if "dry the steel" in parsed.text(p.first_line, p.last_line)
    )
    last = max(p.index for p in parsed.passages if p.section == item.section)
    shown = "\n".join(parsed.text(*span) for span in get_line_ranges(parsed, [last]))
    assert shown.startswith("## Cleaning")
    assert "Scrape the bench" in shown
    assert "dry the steel" in shown
    assert "no soap" not in shown
    (alone,) = get_line_ranges(parsed, [last], context=False)
    assert parsed.text(*alone) == "- dry the steel"


def test_ranges_that_only_blank_lines_part_are_one() -> None:
    parsed = parse(KITCHEN)
    assert get_line_ranges(parsed, range(len(parsed.passages))) == [(1, len(KITCHEN))]
    assert get_line_ranges(parsed, []) == []


def test_max_tokens_caps_what_is_shown() -> None:
    skill = passage_input_of(parse(KITCHEN))
    scores = score_passages(query_of("bake the loaf"), skill, DEFAULT_WEIGHTS)
    for budget in range(0, 120, 7):
        spans = get_line_ranges(skill.parsed, select_passages(scores, skill, 100.0, budget))
        assert sum(count_tokens(skill.parsed.text(*span)) for span in spans) <= budget
    assert select_passages(scores, skill, 100.0, 10_000) == select_passages(scores, skill, 100.0)


def test_a_long_passage_must_stand_nearer_than_a_short_one() -> None:
    lines = ["# T", "", "## A", "", "oven", "", "- bread", "", f"- {'bread ' * 60}"]
    skill = passage_input_of(parse(lines))
    scores = score_passages(query_of("oven"), skill, DEFAULT_WEIGHTS)
    level = replace(scores, passages=np.array([2.0, 1.0, 1.0], np.float32))
    best, short, long = required_gaps(level, skill)
    assert best <= 0
    assert short < long
    free = replace(DEFAULT_WEIGHTS, cost=0.0)
    assert len(set(required_gaps(level, skill, free)[1:].tolist())) == 1


def test_a_broad_query_reaches_further_but_only_so_far() -> None:
    skill = passage_input_of(parse(KITCHEN))
    scores = score_passages(query_of("oven"), skill, DEFAULT_WEIGHTS)
    gaps = [
        required_gaps(replace(scores, terms=terms), skill).max() for terms in (1, 6, 12, 24, 500)
    ]
    assert gaps[0] == gaps[1] > gaps[2] > gaps[3] == gaps[4]


def test_less_of_a_longer_skill_is_near() -> None:
    short, long = parse(KITCHEN), parse([*KITCHEN, *(["", "more words about nothing"] * 200)])
    scores = score_passages(query_of("oven"), passage_input_of(short), DEFAULT_WEIGHTS)
    count = len(short.passages)
    padded = np.full(len(long.passages), -9.0, np.float32)
    padded[:count] = scores.passages
    stretched = required_gaps(replace(scores, passages=padded), passage_input_of(long))[:count]
    near = required_gaps(scores, passage_input_of(short))
    below = scores.passages < scores.passages.max()
    assert (stretched[below] > near[below]).all()


def test_worth_follows_reach() -> None:
    skill = passage_input_of(parse(KITCHEN))
    scores = score_passages(query_of("dry the steel bench"), skill, DEFAULT_WEIGHTS)
    order = np.argsort(-passage_utilities(scores, skill), kind="stable")
    below = scores.passages < scores.passages.max()
    assert np.all(np.diff(required_gaps(scores, skill)[[n for n in order if below[n]]]) >= 0)
    assert (passage_utilities(scores, skill) > 0).all()


@pytest.mark.parametrize("lines", [[], ["# T"], ["one line"], ["# T", "", "text"], ["", ""]])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("asked", ["text", ""])
def test_the_smallest_skills_are_survived(lines: list[str], dense: bool, asked: str) -> None:
    skill = passage_input_of(parse(lines), dense=dense)
    query = query_of(asked, dense=dense)
    scores = score_passages(query, skill, DEFAULT_WEIGHTS)
    chosen = select_passages(scores, skill, DEFAULT_WEIGHTS.gap)
    assert chosen == list(range(len(skill.parsed.passages)))
    assert len(passage_utilities(scores, skill)) == len(required_gaps(scores, skill)) == len(chosen)
    assert np.isfinite(scores.passages).all()


LINES = st.lists(
    st.sampled_from(
        [
            "",
            "# A",
            "## B",
            "### C",
            "plain oven words",
            "- an item",
            "  - nested",
            "1. bake",
            "```",
            "Lead in:",
            "| a | b |",
            "|---|---|",
            "x = 1",
            "用水清洗",
            "if cold, heat",
        ]
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=80)
@given(
    LINES,
    st.floats(0, 12),
    st.floats(0, 12),
    st.booleans(),
    st.sampled_from(["oven bake", "", "水"]),
)
def test_choice_grows_with_the_gap_and_ranges_are_in_order(
    lines: list[str], one: float, other: float, dense: bool, asked: str
) -> None:
    skill = passage_input_of(parse(lines), dense=dense)
    scores = score_passages(query_of(asked, dense=dense), skill, DEFAULT_WEIGHTS)
    narrow = select_passages(scores, skill, min(one, other))
    wide = select_passages(scores, skill, max(one, other))
    assert set(narrow) <= set(wide)
    assert narrow == sorted(set(narrow))
    assert bool(narrow) == bool(skill.parsed.passages)
    spans = get_line_ranges(skill.parsed, wide)
    assert all(1 <= first <= last <= len(lines) for first, last in spans)
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    shown = {n for first, last in spans for n in range(first, last + 1)}
    for index in wide:
        passage = skill.parsed.passages[index]
        assert set(range(passage.first_line, passage.last_line + 1)) <= shown


def test_a_large_skill_is_scored_in_milliseconds() -> None:
    lines = ["# Large"]
    for number in range(400):
        lines += [f"## Part {number}", "", f"word{number} oven and more{number}", "", "- item here"]
    skill = passage_input_of(parse(lines))
    query = query_of(" ".join(f"word{n}" for n in range(160)))
    start = time.perf_counter()
    for _ in range(5):
        select_passages(score_passages(query, skill, DEFAULT_WEIGHTS), skill, DEFAULT_WEIGHTS.gap)
    assert (time.perf_counter() - start) / 5 < 0.2
