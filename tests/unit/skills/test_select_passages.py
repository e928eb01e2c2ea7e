"""Method F: scores, the cutoff and line ranges, on small skills."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skills.parsing.markdown import find_fenced_blocks
from skills.passages import (
    DEFAULT_WEIGHTS,
    MAX_EMBEDDED_CHARACTERS,
    OpenFences,
    compute_margins,
    estimate_needs,
    get_line_ranges,
    line_ranges,
    passage_texts,
    score_passages,
    section_texts,
)
from skills.passages.features import FEATURES, compute_features
from skills.passages.model import load_need_models
from tests.support.samples.passages import LINES, parse, passage_input_of, query_of

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


def test_missing_less_keeps_more() -> None:
    needs = estimate_needs(query_of("dry the steel bench"), passage_input_of(parse(KITCHEN)))
    kept = [set(needs.select_enough(miss)) for miss in (0.0, 0.1, 0.3, 0.6, 1.0)]
    assert kept[0] == set(range(len(needs.needs)))
    assert all(more >= less for more, less in pairwise(kept))
    assert needs.order()[0] in kept[-1]
    shares = [needs.sufficiency(miss) for miss in (0.0, 0.1, 0.3, 0.6)]
    assert shares[0] == 1.0
    assert shares == sorted(shares, reverse=True)


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


@pytest.mark.parametrize(
    ("line", "fence"),
    [(1, ""), (3, ""), (4, "```py"), (6, "```py"), (7, "```py"), (10, "- ~~~ sh"), (12, "")],
)
def test_the_fence_above_a_line(line: int, fence: str) -> None:
    text = "Run:\n\n```py\na = 1\n\nb = 2\n```\n\n- ~~~ sh\n  ls\n  ~~~\nafter"
    assert OpenFences(parse(text.split("\n"))).find(line) == fence


def test_the_fences_of_a_long_block_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Mock(wraps=find_fenced_blocks)
    monkeypatch.setattr(line_ranges, "find_fenced_blocks", found)
    lines = ["Bake:", "", "```sh", *["heat", "bake", "wait", "turn", ""] * 50, "```", "", "Eat."]
    parsed = parse(lines)
    assert len(parsed.passages) > 50
    starts, fences = [one.first_line for one in parsed.passages], OpenFences(parsed)
    assert {fences.find(start) for start in starts[2:-1]} == {"```sh"}
    assert found.call_count == 1


def test_a_long_passage_must_stand_nearer_than_a_short_one() -> None:
    lines = ["# T", "", "## A", "", "oven", "", "- bread", "", f"- {'bread ' * 60}"]
    skill = passage_input_of(parse(lines))
    scores = score_passages(query_of("oven"), skill, DEFAULT_WEIGHTS)
    level = replace(scores, passages=np.array([2.0, 1.0, 1.0], np.float32))
    best, short, long = compute_margins(level, skill, DEFAULT_WEIGHTS)
    assert best > short > long
    free = replace(DEFAULT_WEIGHTS, cost=0.0)
    assert len(set(compute_margins(level, skill, free)[1:].tolist())) == 1


def test_a_broad_query_reaches_further_but_only_so_far() -> None:
    skill = passage_input_of(parse(KITCHEN))
    scores = score_passages(query_of("oven"), skill, DEFAULT_WEIGHTS)
    margins = [
        compute_margins(replace(scores, terms=terms), skill, DEFAULT_WEIGHTS).min()
        for terms in (1, 6, 12, 24, 500)
    ]
    assert margins[0] == margins[1] < margins[2] < margins[3] == margins[4]


def test_less_of_a_longer_skill_is_near() -> None:
    short, long = parse(KITCHEN), parse([*KITCHEN, *(["", "more words about nothing"] * 200)])
    scores = score_passages(query_of("oven"), passage_input_of(short), DEFAULT_WEIGHTS)
    count = len(short.passages)
    padded = np.full(len(long.passages), -9.0, np.float32)
    padded[:count] = scores.passages
    far = compute_margins(
        replace(scores, passages=padded), passage_input_of(long), DEFAULT_WEIGHTS
    )[:count]
    near = compute_margins(scores, passage_input_of(short), DEFAULT_WEIGHTS)
    below = scores.passages < scores.passages.max()
    assert (far[below] < near[below]).all()


def test_a_passage_that_shares_a_name_with_the_best_is_needed_more() -> None:
    lines = ["# T", "", "## Steps", "", "Heat the oven with `preheat_deck`.", ""]
    lines += [
        "## Code",
        "",
        "def preheat_deck(): pass",
        "",
        "## Other",
        "",
        "def wipe_bench(): pass",
    ]
    lines += [f"{line}\n" for number in range(6) for line in ("", f"## Part {number}", "", "flour")]
    skill = passage_input_of(parse("\n".join(lines).splitlines()))
    query = query_of("heat the oven")
    scores = score_passages(query, skill, DEFAULT_WEIGHTS)
    shared = compute_features(scores, compute_margins(scores, skill, DEFAULT_WEIGHTS), skill)[
        :, FEATURES.index("shared_terms")
    ]
    assert shared[1] > shared[2]


@pytest.mark.parametrize("dense", [True, False])
def test_features_are_finite_and_named(dense: bool) -> None:
    skill = passage_input_of(parse(KITCHEN), dense=dense)
    scores = score_passages(query_of("oven", dense=dense), skill, DEFAULT_WEIGHTS)
    margins = compute_margins(scores, skill, DEFAULT_WEIGHTS)
    features = compute_features(scores, margins, skill)
    assert features.shape == (len(skill.parsed.passages), len(FEATURES))
    assert np.isfinite(features).all()
    assert (features[:, FEATURES.index("section_cosine")].any()) is np.bool_(dense)


def test_the_models_of_the_package_say_what_is_missed() -> None:
    for model in load_need_models().values():
        assert model.weights.shape == (len(FEATURES),)
        assert (np.diff(model.missed) >= 0).all()
        assert (np.diff(model.short) >= 0).all()
        assert model.threshold(0) == -np.inf
        assert model.threshold(0.1) < model.threshold(0.3)
        # A query is short as soon as one of its passages is missed.
        assert model.shortfall(model.threshold(0.2)) > 0.2


@pytest.mark.parametrize("lines", [[], ["# T"], ["one line"], ["# T", "", "text"], ["", ""]])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("asked", ["text", ""])
def test_the_smallest_skills_are_survived(lines: list[str], dense: bool, asked: str) -> None:
    skill = passage_input_of(parse(lines), dense=dense)
    query = query_of(asked, dense=dense)
    needs = estimate_needs(query, skill)
    chosen = needs.select_enough(0.0)
    assert chosen == list(range(len(skill.parsed.passages)))
    assert sorted(needs.order()) == chosen
    assert bool(needs.select_enough(1.0)) == bool(chosen)
    assert np.isfinite(needs.needs).all()


@settings(deadline=None, max_examples=80)
@given(
    LINES,
    st.floats(0, 1),
    st.floats(0, 1),
    st.booleans(),
    st.sampled_from(["oven bake", "", "水"]),
)
def test_choice_grows_as_less_may_be_missed_and_ranges_contain_it(
    lines: list[str], one: float, other: float, dense: bool, asked: str
) -> None:
    skill = passage_input_of(parse(lines), dense=dense)
    needs = estimate_needs(query_of(asked, dense=dense), skill)
    narrow, wide = needs.select_enough(max(one, other)), needs.select_enough(min(one, other))
    assert set(narrow) <= set(wide)
    spans = get_line_ranges(skill.parsed, wide)
    shown = {n for first, last in spans for n in range(first, last + 1)}
    for index in wide:
        passage = skill.parsed.passages[index]
        assert set(range(passage.first_line, passage.last_line + 1)) <= shown


def test_the_time_grows_with_the_number_of_passages_and_not_its_square() -> None:
    query = query_of(" ".join(f"word{n}" for n in range(160)))

    def spent(parts: int) -> float:
        """Least processor time of several runs, in seconds."""
        lines = ["# Large"]
        for n in range(parts):
            lines += [f"## Part {n}", "", f"word{n} oven and more{n}", "", "- item here"]
        skill = passage_input_of(parse(lines))
        times = []
        for _ in range(5):
            start = time.thread_time()
            estimate_needs(query, skill).select_enough(0.2)
            times.append(time.thread_time() - start)
        return min(times)

    assert spent(3200) < 64 * spent(200), "16 times the passages; squared it would be 256"
