"""Paging by worth: scores, the stop and line ranges, on skills made up here."""

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
    TEXT_LIMIT,
    choose,
    lines_of,
    passage_texts,
    reaches,
    score_passages,
    section_texts,
    worths,
)
from skills.token_count import count_tokens
from tests.support.paging import page_of, parse, query_of

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
    assert len(section_texts(parse(["# T", "", "word " * 2000]))[0]) == TEXT_LIMIT


@pytest.mark.parametrize("dense", [True, False])
def test_what_is_asked_scores_best(dense: bool) -> None:
    page = page_of(parse(KITCHEN), dense=dense)
    scores = score_passages(query_of("heat the oven and bake", dense=dense), page, DEFAULT_WEIGHTS)
    best = page.parsed.passages[int(scores.passages.argmax())]
    assert page.parsed.sections[best.section].heading_path[-1] == "Baking"
    assert scores.dense is dense
    assert scores.sections.shape == (len(page.parsed.sections),)


def test_vectors_are_used_only_when_both_sides_have_them() -> None:
    page = page_of(parse(KITCHEN))
    assert not score_passages(query_of("oven", dense=False), page, DEFAULT_WEIGHTS).dense


def test_a_narrow_gap_keeps_less_than_a_wide_one() -> None:
    page = page_of(parse(KITCHEN))
    scores = score_passages(query_of("dry the steel bench"), page, DEFAULT_WEIGHTS)
    narrow, wide = choose(scores, page, 0.0), choose(scores, page, 100.0)
    assert len(narrow) >= 1
    assert wide == list(range(len(page.parsed.passages)))
    assert set(narrow) < set(wide)


def test_lines_bring_headings_and_lead_ins() -> None:
    parsed = parse(KITCHEN)
    item = next(
        p for p in parsed.passages if "dry the steel" in parsed.text(p.first_line, p.last_line)
    )
    last = max(p.index for p in parsed.passages if p.section == item.section)
    shown = "\n".join(parsed.text(*span) for span in lines_of(parsed, [last]))
    assert shown.startswith("## Cleaning")
    assert "Scrape the bench" in shown
    assert "dry the steel" in shown
    assert "no soap" not in shown
    (alone,) = lines_of(parsed, [last], context=False)
    assert parsed.text(*alone) == "- dry the steel"


def test_ranges_that_only_blank_lines_part_are_one() -> None:
    parsed = parse(KITCHEN)
    assert lines_of(parsed, range(len(parsed.passages))) == [(1, len(KITCHEN))]
    assert lines_of(parsed, []) == []


def test_max_tokens_caps_what_is_shown() -> None:
    page = page_of(parse(KITCHEN))
    scores = score_passages(query_of("bake the loaf"), page, DEFAULT_WEIGHTS)
    for budget in range(0, 120, 7):
        spans = lines_of(page.parsed, choose(scores, page, 100.0, budget))
        assert sum(count_tokens(page.parsed.text(*span)) for span in spans) <= budget
    assert choose(scores, page, 100.0, 10_000) == choose(scores, page, 100.0)


def test_a_long_passage_must_stand_nearer_than_a_short_one() -> None:
    lines = ["# T", "", "## A", "", "oven", "", "- bread", "", f"- {'bread ' * 60}"]
    page = page_of(parse(lines))
    scores = score_passages(query_of("oven"), page, DEFAULT_WEIGHTS)
    level = replace(scores, passages=np.array([2.0, 1.0, 1.0], np.float32))
    best, short, long = reaches(level, page)
    assert best <= 0
    assert short < long
    free = replace(DEFAULT_WEIGHTS, cost=0.0)
    assert len(set(reaches(level, page, free)[1:].tolist())) == 1


def test_a_broad_query_reaches_further_but_only_so_far() -> None:
    page = page_of(parse(KITCHEN))
    scores = score_passages(query_of("oven"), page, DEFAULT_WEIGHTS)
    gaps = [reaches(replace(scores, terms=terms), page).max() for terms in (1, 6, 12, 24, 500)]
    assert gaps[0] == gaps[1] > gaps[2] > gaps[3] == gaps[4]


def test_less_of_a_longer_skill_is_near() -> None:
    short, long = parse(KITCHEN), parse([*KITCHEN, *(["", "more words about nothing"] * 200)])
    scores = score_passages(query_of("oven"), page_of(short), DEFAULT_WEIGHTS)
    count = len(short.passages)
    padded = np.full(len(long.passages), -9.0, np.float32)
    padded[:count] = scores.passages
    stretched = reaches(replace(scores, passages=padded), page_of(long))[:count]
    near = reaches(scores, page_of(short))
    below = scores.passages < scores.passages.max()
    assert (stretched[below] > near[below]).all()


def test_worth_follows_reach() -> None:
    page = page_of(parse(KITCHEN))
    scores = score_passages(query_of("dry the steel bench"), page, DEFAULT_WEIGHTS)
    order = np.argsort(-worths(scores, page), kind="stable")
    below = scores.passages < scores.passages.max()
    assert np.all(np.diff(reaches(scores, page)[[n for n in order if below[n]]]) >= 0)
    assert (worths(scores, page) > 0).all()


@pytest.mark.parametrize("lines", [[], ["# T"], ["one line"], ["# T", "", "text"], ["", ""]])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("asked", ["text", ""])
def test_the_smallest_skills_are_survived(lines: list[str], dense: bool, asked: str) -> None:
    page = page_of(parse(lines), dense=dense)
    query = query_of(asked, dense=dense)
    scores = score_passages(query, page, DEFAULT_WEIGHTS)
    chosen = choose(scores, page, DEFAULT_WEIGHTS.gap)
    assert chosen == list(range(len(page.parsed.passages)))
    assert len(worths(scores, page)) == len(reaches(scores, page)) == len(chosen)
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
    page = page_of(parse(lines), dense=dense)
    scores = score_passages(query_of(asked, dense=dense), page, DEFAULT_WEIGHTS)
    narrow = choose(scores, page, min(one, other))
    wide = choose(scores, page, max(one, other))
    assert set(narrow) <= set(wide)
    assert narrow == sorted(set(narrow))
    assert bool(narrow) == bool(page.parsed.passages)
    spans = lines_of(page.parsed, wide)
    assert all(1 <= first <= last <= len(lines) for first, last in spans)
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    shown = {n for first, last in spans for n in range(first, last + 1)}
    for index in wide:
        passage = page.parsed.passages[index]
        assert set(range(passage.first_line, passage.last_line + 1)) <= shown


def test_a_large_skill_is_scored_in_milliseconds() -> None:
    lines = ["# Large"]
    for number in range(400):
        lines += [f"## Part {number}", "", f"word{number} oven and more{number}", "", "- item here"]
    page = page_of(parse(lines))
    query = query_of(" ".join(f"word{n}" for n in range(160)))
    start = time.perf_counter()
    for _ in range(5):
        choose(score_passages(query, page, DEFAULT_WEIGHTS), page, DEFAULT_WEIGHTS.gap)
    assert (time.perf_counter() - start) / 5 < 0.2
