"""Paging: scores, the score gap, MMR and line ranges, on skills made up here."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skills.fragments import fragment
from skills.paging import (
    DEFAULT_WEIGHTS,
    TEXT_LIMIT,
    PageInput,
    PageQuery,
    choose,
    lines_of,
    mmr,
    passage_texts,
    score_passages,
    section_texts,
)
from skills.record import ParsedSkill, SkillRecord
from skills.tokens import count_tokens

DIMENSION = 8

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


def term(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def vector(text: str) -> np.ndarray:
    """A bag of hashed words, as a unit vector."""
    out = np.full(DIMENSION, 1e-3, np.float32)
    for word in re.findall(r"\w+", text.lower()):
        out[term(word) % DIMENSION] += 1
    return out / np.linalg.norm(out)


def parse(lines: list[str]) -> ParsedSkill:
    return ParsedSkill(SkillRecord("x", "y", "z"), tuple(lines), 1, *fragment(lines, 1))


def page_of(parsed: ParsedSkill, *, dense: bool = True) -> PageInput:
    rows, terms, counts = [0], [], []
    for passage in parsed.passages:
        words = re.findall(r"\w+", parsed.text(passage.first_line, passage.last_line).lower())
        ids, times = np.unique(np.array([term(w) for w in words], np.uint64), return_counts=True)
        terms.append(ids)
        counts.append(times)
        rows.append(rows[-1] + len(ids))
    sections = [vector(text) for text in section_texts(parsed)]
    return PageInput(
        parsed,
        np.array(rows, np.int32),
        np.concatenate([np.empty(0, np.uint64), *terms]),
        np.concatenate([np.empty(0, np.uint16), *counts]).astype(np.uint16),
        np.array(sections, np.float32).reshape(len(sections), DIMENSION) if dense else None,
    )


def query_of(text: str, *, dense: bool = True) -> PageQuery:
    ids = np.unique(np.array([term(w) for w in re.findall(r"\w+", text.lower())], np.uint64))
    return PageQuery(vector(text) if dense else None, ids, np.ones(len(ids), np.float32))


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


def test_mmr_prefers_what_is_new() -> None:
    lines = ["# T", "", "same", "", "same", "", "other"]
    page = page_of(parse(lines))
    close, far = np.eye(DIMENSION, dtype=np.float32)[:2]
    asked = ((close + 0.75 * far) / 1.25).astype(np.float32)
    query = PageQuery(asked, np.empty(0, np.uint64), np.empty(0, np.float32))
    page = replace(page, passage_vectors=np.stack([close, close, far]))
    assert mmr(query, page, replace(DEFAULT_WEIGHTS, mmr_small=2)) == [0, 2]


def test_mmr_stops_below_zero_and_needs_vectors() -> None:
    page = page_of(parse(["# T", "", "one", "", "two"]))
    query = query_of("one")
    assert mmr(query, page, DEFAULT_WEIGHTS) == []
    assert query.vector is not None
    away = np.stack([-query.vector, -query.vector])
    assert mmr(query, replace(page, passage_vectors=away), DEFAULT_WEIGHTS) == []


@pytest.mark.parametrize("lines", [[], ["# T"], ["one line"], ["# T", "", "text"], ["", ""]])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("asked", ["text", ""])
def test_the_smallest_skills_are_survived(lines: list[str], dense: bool, asked: str) -> None:
    page = page_of(parse(lines), dense=dense)
    query = query_of(asked, dense=dense)
    scores = score_passages(query, page, DEFAULT_WEIGHTS)
    chosen = choose(scores, page, DEFAULT_WEIGHTS.gap)
    assert chosen == list(range(len(page.parsed.passages)))
    assert mmr(query, page, DEFAULT_WEIGHTS) == []
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
