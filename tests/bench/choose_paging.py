"""Choose paging's constants by leaving one skill out at a time.

usage: choose_paging.py GOLD.jsonl SKILLS_DIR [GOLD.jsonl SKILLS_DIR ...]

GOLD.jsonl     one object a line: query, skill_id (SOURCE:FOLDER), required ([[first, last], ...])
SKILLS_DIR     holds FOLDER/SKILL.md

For some token reductions, prints the sufficiency and the reduction of the skills left out: with the
constants as they were before a passage's cost and a query's breadth counted, with those in force,
and with those chosen on the other skills. With several sets, also each by what was chosen on the
others alone. Then what each value of each constant gives on average, and the best settings with
their gaps.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from search.models.encoder import SentenceTransformerEncoder
from search.skill_analysis import analyse_skill
from search.text.tokens import term_ids, tokenize
from skills.parsing.parse_skill import parse_skill
from skills.passages import (
    DEFAULT_WEIGHTS,
    PassageInput,
    PassageQuery,
    PassageWeights,
    get_line_ranges,
    required_gaps,
    score_passages,
    section_texts,
)
from skills.token_count import count_tokens

REDUCTIONS = np.arange(0.40, 0.651, 0.025)
REPORTED = (0.60, 0.58, 0.50, 0.40)
VALUES = {
    "gap_power": (0.5, 0.65, 0.8),
    "cost": (0.0, 0.2, 0.35, 0.5),
    "breadth": (0.0, 1.0, 2.0, 3.0),
    "neighbour": (0.1, 0.15, 0.2),
    "section_bm25": (0.35, 0.5),
}
GRID = [
    replace(DEFAULT_WEIGHTS, **dict(zip(VALUES, values, strict=True)))
    for values in itertools.product(*VALUES.values())
]
BEFORE = replace(
    DEFAULT_WEIGHTS, gap_power=0.5, cost=0.0, breadth=0.0, neighbour=0.2, section_bm25=0.5
)

Ints = npt.NDArray[np.intp]


class Case(NamedTuple):
    """One query of one skill, ready to score. shown: lines that each passage brings (P, lines)."""

    skill: str
    query: PassageQuery
    page: PassageInput
    tokens: npt.NDArray[np.int64]
    required: list[int]
    shown: npt.NDArray[np.bool_]


class Walk(NamedTuple):
    """What each wider gap adds to a case: the gap, tokens, and 1 where it becomes sufficient."""

    gaps: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.float64]
    sufficient: npt.NDArray[np.float64]


def load(gold: Path, skills: Path, encoder: SentenceTransformerEncoder) -> list[Case]:
    """The cases, with section and query vectors."""
    pages: dict[str, PassageInput] = {}
    cases = []
    for row in map(json.loads, gold.read_text(encoding="utf-8").splitlines()):
        folder = row["skill_id"].partition(":")[2]
        if folder not in pages:
            parsed = parse_skill(folder, (skills / folder / "SKILL.md").read_bytes())
            terms = analyse_skill(parsed).passage_terms
            vectors = encoder.encode(section_texts(parsed))
            pages[folder] = PassageInput(parsed, terms.offsets, terms.terms, terms.counts, vectors)
        page = pages[folder]
        ids, times = np.unique(term_ids(tokenize(row["query"])), return_counts=True)
        weights = (1 + 0.5 * np.log(times)).astype(np.float32)
        query = PassageQuery(encoder.encode([row["query"]])[0], ids, weights)
        lines = page.parsed.lines
        tokens = np.array([count_tokens(line) for line in lines])
        tokens[: page.parsed.body_line - 1] = 0
        required = {n - 1 for first, last in row["required"] for n in range(first, last + 1)}
        wanted = [number for number in sorted(required) if lines[number].strip()]
        cases.append(Case(folder, query, page, tokens, wanted, _shown(page)))
    return cases


def _shown(page: PassageInput) -> npt.NDArray[np.bool_]:
    shown = np.zeros((len(page.parsed.passages), len(page.parsed.lines)), bool)
    for passage in page.parsed.passages:
        for first, last in get_line_ranges(page.parsed, [passage.index]):
            shown[passage.index, first - 1 : last] = True
    return shown


def walk(case: Case, weights: PassageWeights) -> Walk:
    """What each wider gap adds."""
    needed = required_gaps(score_passages(case.query, case.page, weights), case.page, weights)
    order = np.argsort(needed, kind="stable")
    shown = np.maximum.accumulate(case.shown[order], axis=0)
    sufficient = shown[:, case.required].all(axis=1).astype(float)
    tokens = (shown @ case.tokens).astype(float)
    return Walk(needed[order].astype(float), _added(tokens), _added(sufficient))


def _added(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.diff(values, prepend=0.0)


class Table:
    """The walks of all cases under one setting."""

    def __init__(self, cases: Sequence[Case], weights: PassageWeights) -> None:
        self.walks = [walk(case, weights) for case in cases]
        self.full = np.array([case.tokens.sum() for case in cases])

    def curve(self, places: Ints) -> tuple[npt.NDArray[np.float64], ...]:
        """Gaps ascending, the reduction and the sufficiency from each on."""
        gaps, tokens, sufficient = (
            np.concatenate(parts) for parts in zip(*(self.walks[n] for n in places), strict=True)
        )
        order = np.argsort(gaps, kind="stable")
        kept, found = tokens[order].cumsum(), sufficient[order].cumsum()
        return gaps[order], 1 - kept / self.full[places].sum(), found / len(places)

    def at(self, places: Ints, reduction: float) -> tuple[float, float]:
        """The widest gap that still reduces by this much, and its sufficiency."""
        gaps, reductions, sufficient = self.curve(places)
        row = int(np.flatnonzero(reductions >= reduction)[-1])
        return float(gaps[row]), float(sufficient[row])

    def mean(self, places: Ints) -> float:
        """The mean sufficiency over the reductions."""
        _, reductions, sufficient = self.curve(places)
        rows = [np.flatnonzero(reductions >= reduction)[-1] for reduction in REDUCTIONS]
        return float(sufficient[rows].mean())

    def apply(self, places: Ints, gap: float) -> npt.NDArray[np.float64]:
        """Sufficient cases and tokens kept of some cases with a gap."""
        sums = np.zeros(2)
        for walked in (self.walks[n] for n in places):
            reached = walked.gaps <= gap
            sums += walked.sufficient[reached].sum(), walked.tokens[reached].sum()
        return sums


def left_out(
    tables: Sequence[Table], held: Sequence[Ints], others: Callable[[Ints], Ints], reduction: float
) -> str:
    """Sufficiency and reduction of each held part by what is best on the others."""
    sums, everything = np.zeros(2), np.concatenate(held)
    for places in held:
        known = others(places)
        table = max(tables, key=lambda one: one.mean(known))
        sums += table.apply(places, table.at(known, reduction)[0])
    full = tables[0].full[everything].sum()
    return f"{sums[0] / len(everything):.3f} @ {1 - sums[1] / full:.3f}"


def report(tables: list[Table], before: Table, now: Table, owners: list[str], sets: Ints) -> None:
    """Print what the skills left out reach."""
    everything = np.arange(len(owners))
    names = np.array(owners)
    skills = [np.flatnonzero(names == name) for name in dict.fromkeys(owners)]
    parts = [np.flatnonzero(sets == number) for number in np.unique(sets)]

    def rest(places: Ints) -> Ints:
        return np.setdiff1d(everything, places)

    for reduction in REPORTED:
        print(
            f"at {reduction:.2f}: before {left_out([before], skills, rest, reduction)}, "
            f"in force {left_out([now], skills, rest, reduction)}, "
            f"chosen on the other skills {left_out(tables, skills, rest, reduction)}"
        )
        if len(parts) > 1:
            for number, places in enumerate(parts, 1):
                then = left_out([before], [places], rest, reduction)
                told = left_out(tables, [places], rest, reduction)
                print(f"    set {number} by the others alone: before {then}, chosen {told}")


def main(argv: list[str]) -> int:
    """Load, tabulate, print."""
    if len(argv) < 3 or len(argv) % 2 == 0:
        print(__doc__, file=sys.stderr)
        return 2
    encoder = SentenceTransformerEncoder()
    loaded = [
        load(Path(gold), Path(skills), encoder)
        for gold, skills in zip(argv[1::2], argv[2::2], strict=True)
    ]
    cases = [case for part in loaded for case in part]
    sets = np.repeat(np.arange(len(loaded)), [len(part) for part in loaded])
    tables = [Table(cases, weights) for weights in GRID]
    now = Table(cases, DEFAULT_WEIGHTS)
    report(tables, Table(cases, BEFORE), now, [case.skill for case in cases], sets)
    everything = np.arange(len(cases))
    means = np.array([table.mean(everything) for table in tables])
    for name, values in VALUES.items():
        rows = [[getattr(weights, name) == value for weights in GRID] for value in values]
        shares = ", ".join(
            f"{value}: {means[row].mean():.3f}" for value, row in zip(values, rows, strict=True)
        )
        print(f"{name}: {shares}")
    in_force = [f"{now.at(everything, reduction)[0]:.2f}" for reduction in REPORTED]
    print(f"in force: {now.mean(everything):.3f}, gaps {' '.join(in_force)}")
    for place in np.argsort(-means)[:10].tolist():
        gaps = [f"{tables[place].at(everything, reduction)[0]:.2f}" for reduction in REPORTED]
        setting = " ".join(f"{name}={getattr(GRID[place], name)}" for name in VALUES)
        print(f"{means[place]:.3f}: {setting} gaps={' '.join(gaps)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
