"""Section *answers*: queries asked of the whole library; are all required lines in the bundle?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.quality.data import Row
from tests.bench.quality.figures import COLUMNS, count, mean_figure, share, wide_table
from tests.bench.quality.run import Run, embedded_share
from workers.evaluation.answers import Answer, answer_queries
from workers.evaluation.metrics import line_set
from workers.evaluation.predictions import read_published_revisions

BUDGETS = (2_000, 4_000, 8_000)
WRITERS = {
    "skill": share,
    "offered": share,
    "lines": share,
    "skills": "{:.1f}".format,
    "tokens": count,
}
NAMES = {
    "skill": "its skill",
    "offered": "its skill, or a description of it",
    "lines": "every required line",
}


def measure(run: Run) -> dict[str, Any]:
    """Shares of queries by budget, over all queries and by collection."""
    found: dict[str, Any] = {}
    with run.open_whole() as services:
        embedded = embedded_share(services)
        for column in COLUMNS:
            rows = run.data.labels(column, "queries.jsonl")
            revisions = read_published_revisions(services, [row["skill_id"] for row in rows])
            lines = {name: one.parsed.lines for name, one in revisions.items()}
            for budget in BUDGETS if rows else ():
                given = dict(answer_queries(services, rows, budget))
                for name, figures in _figures(run, rows, given, lines).items():
                    part = found.setdefault(str(budget), {}).setdefault(name, {})
                    for measured, figure in figures.items():
                        part.setdefault(measured, {})[column] = figure
    return {"embedded": round(embedded, 3), "budgets": found}


def _figures(
    run: Run,
    rows: Sequence[Row],
    given: Mapping[str, Answer],
    lines: Mapping[str, Sequence[str]],
) -> dict[str, dict[str, Any]]:
    """By collection: skill in the bundle, or described in it, all required lines, and tokens."""
    parts: dict[str, list[Row]] = {"all": list(rows)}
    for row in rows:
        parts.setdefault(run.data.collection(row["skill_id"]), []).append(row)
    found = {}
    for name, mine in parts.items():
        answers = [given[row["query_id"]] for row in mine]
        pairs = list(zip(mine, answers, strict=True))
        groups = [row["skill_id"] for row in mine]
        found[name] = {
            "skill": mean_figure([float(r["skill_id"] in a.skills) for r, a in pairs], groups),
            "offered": mean_figure([float(a.offers(r["skill_id"])) for r, a in pairs], groups),
            "lines": mean_figure(
                [float(_holds(r, a, lines[r["skill_id"]])) for r, a in pairs], groups
            ),
            "skills": mean_figure([float(len(a.skills)) for a in answers], groups),
            "tokens": mean_figure([float(a.tokens) for a in answers], groups),
        }
    return found


def _holds(row: Row, answer: Answer, lines: Sequence[str]) -> bool:
    """Whether every required line that is not blank was sent."""
    wanted = {line for line in line_set(row["required"]) if lines[line - 1].strip()}
    return wanted <= line_set(answer.skills.get(row["skill_id"], ()))


def render(found: Mapping[str, Any]) -> dict[str, str]:
    """One table, with a row per budget and collection."""
    rows = [
        (
            f"{int(budget):,} tokens, {name}",
            {NAMES.get(one, one): pair for one, pair in figures.items()},
        )
        for budget, parts in found["budgets"].items()
        for name, figures in parts.items()
    ]
    writers = {NAMES.get(one, one): write for one, write in WRITERS.items()}
    return {
        "embedded": f"{found['embedded']:.0%}",
        "table": wide_table("the bundle holds", rows, writers),
    }
