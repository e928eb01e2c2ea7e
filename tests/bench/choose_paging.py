"""Choose paging's constants by leaving one skill out at a time.

usage: choose_paging.py GOLD.jsonl SKILLS_DIR

GOLD.jsonl     one object a line: query, skill_id (SOURCE:FOLDER), required ([[first, last], ...])
SKILLS_DIR     holds FOLDER/SKILL.md

For each reduction, prints the sufficiency and the reduction of the held-out skills, with the
constants and the gap chosen on the other skills; then each setting of the grid on all of them.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from search.documents import analyse
from search.encoder import SentenceTransformerEncoder
from search.tokens import term_ids, tokenize
from skills.paging import (
    PageInput,
    PageQuery,
    PagingWeights,
    choose,
    lines_of,
    score_passages,
    section_texts,
)
from skills.parsing import parse_skill
from skills.tokens import count_tokens

GAPS = np.arange(2.0, 14.0, 0.2)
REDUCTIONS = np.arange(0.40, 0.651, 0.025)
REPORTED = (0.60, 0.58, 0.50, 0.40)
GRID = tuple(
    PagingWeights(gap_power=power, neighbour=neighbour, bm25_b=b)
    for power, neighbour, b in itertools.product(
        (0.3, 0.5, 0.6), (0.15, 0.2, 0.3), (0.4, 0.5, 0.75)
    )
)

Table = npt.NDArray[np.float64]
"""Sufficient, tokens kept and tokens of the body: (3, gaps, queries)."""


class Case(NamedTuple):
    """One query of one skill, ready to score."""

    skill: str
    query: PageQuery
    page: PageInput
    tokens: npt.NDArray[np.int64]
    required: list[int]


def load(gold: Path, skills: Path) -> list[Case]:
    """The cases, with section and query vectors."""
    encoder = SentenceTransformerEncoder()
    pages: dict[str, PageInput] = {}
    cases = []
    for row in map(json.loads, gold.read_text(encoding="utf-8").splitlines()):
        folder = row["skill_id"].partition(":")[2]
        if folder not in pages:
            parsed = parse_skill(folder, (skills / folder / "SKILL.md").read_bytes())
            terms = analyse(parsed).passage_terms
            vectors = encoder.encode(section_texts(parsed))
            pages[folder] = PageInput(parsed, terms.offsets, terms.terms, terms.counts, vectors)
        page = pages[folder]
        ids, times = np.unique(term_ids(tokenize(row["query"])), return_counts=True)
        weights = (1 + 0.5 * np.log(times)).astype(np.float32)
        query = PageQuery(encoder.encode([row["query"]])[0], ids, weights)
        lines = page.parsed.lines
        tokens = np.array([count_tokens(line) for line in lines])
        tokens[: page.parsed.body_line - 1] = 0
        required = {n - 1 for first, last in row["required"] for n in range(first, last + 1)}
        wanted = [number for number in sorted(required) if lines[number].strip()]
        cases.append(Case(folder, query, page, tokens, wanted))
    return cases


def table(cases: list[Case], weights: PagingWeights) -> Table:
    """What each gap gives for each case."""
    out = np.zeros((3, len(GAPS), len(cases)))
    for column, case in enumerate(cases):
        scores = score_passages(case.query, case.page, weights)
        for row, gap in enumerate(GAPS):
            shown = np.zeros(len(case.tokens), bool)
            chosen = choose(scores, case.page, float(gap), None, weights)
            for first, last in lines_of(case.page.parsed, chosen):
                shown[first - 1 : last] = True
            kept, whole = case.tokens[shown].sum(), case.tokens.sum()
            out[:, row, column] = shown[case.required].all(), kept, whole
    return out


def best_gap(results: Table, reduction: float) -> tuple[float, int]:
    """The sufficiency at, and the row of, the widest gap that still reduces by this much."""
    rows = np.flatnonzero(1 - results[1].sum(1) / results[2].sum(1) >= reduction)
    row = int(rows[-1]) if rows.size else 0
    return float(results[0, row].mean()), row


def worth(results: Table) -> float:
    """The mean sufficiency over the reductions."""
    return float(np.mean([best_gap(results, reduction)[0] for reduction in REDUCTIONS]))


def left_out(tables: list[Table], owners: npt.NDArray[np.str_], reduction: float) -> str:
    """Sufficiency and reduction of each skill by what was chosen on the others."""
    held = np.zeros(3)
    for skill in np.unique(owners):
        out = owners == skill
        results = max(tables, key=lambda results: worth(results[:, :, ~out]))
        held += results[:, best_gap(results[:, :, ~out], reduction)[1], out].sum(1)
    return f"{held[0] / len(owners):.3f} @ {1 - held[1] / held[2]:.3f}"


def main(argv: list[str]) -> int:
    """Load, tabulate, print."""
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    cases = load(Path(argv[1]), Path(argv[2]))
    owners = np.array([case.skill for case in cases])
    tables = [table(cases, weights) for weights in GRID]
    for reduction in REPORTED:
        print(f"left out, at {reduction:.2f}: {left_out(tables, owners, reduction)}")
    for weights, results in sorted(zip(GRID, tables, strict=True), key=lambda p: -worth(p[1])):
        gaps = [f"{GAPS[best_gap(results, reduction)[1]]:.1f}" for reduction in REPORTED]
        print(
            f"{worth(results):.3f} power={weights.gap_power} neighbour={weights.neighbour} "
            f"b={weights.bm25_b} gaps={' '.join(gaps)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
