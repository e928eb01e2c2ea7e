"""Section *how sure*: calibration of the first skill's probability, and NO_SKILL_HIT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from skills.events import QueryAsked, QueryFilters
from tasks.policies import QUERY, Deadline
from tasks.query.pipeline import answer_query
from tasks.services import Services
from tests.bench.quality.data import Row, needed_sources, spaced, with_skills
from tests.bench.quality.figures import (
    COLUMNS,
    CROSS_VALIDATED,
    make_figure,
    mean_figure,
    pair_table,
)
from tests.bench.quality.plots import draw_reliability
from tests.bench.quality.run import Run
from workers.evaluation.intervals import Floats
from workers.evaluation.metrics import reliability_bins

BINS = 10
PROMPTS = 200
"""Prompts that are answered with and without their skills: evenly spaced."""

Outcomes = Sequence[tuple[float, bool, str]]
"""(predicted probability, whether it came true, group)"""


def measure(run: Run) -> dict[str, Any]:
    """Calibration over prompts and judged near misses; NO_SKILL_HIT with and without the skills."""
    found: dict[str, Any] = {}
    with run.open_whole() as services:
        for column in COLUMNS:
            rows = run.data.labels(column, "prompts.jsonl")
            if outcomes := _outcomes(run, services, rows):
                found.setdefault("calibration", {})[column] = _calibration(outcomes)
            refusals: dict[str, Any] = {}
            for kind, asked in (
                ("tasks", run.data.labels(column, "tasks.jsonl")),
                ("prompts", spaced(with_skills(rows), PROMPTS)),
            ):
                refusals |= _refusals(run, services, kind, asked)
            for name, figure in refusals.items():
                found.setdefault("no_skill_hit", {}).setdefault(name, {})[column] = figure
    predicted = run.data.predictions("probabilities.json")
    if predicted is not None and "left_out" not in found.get("calibration", {}):
        known = {row["task_id"] for row in run.data.labels("dev", "prompts.jsonl")}
        mine = [one for one in predicted if one["task_id"] in known]
        outcomes = [(one["probability"], one["right"], one["group"]) for one in mine]
        found.setdefault("calibration", {})["left_out"] = _calibration(outcomes, CROSS_VALIDATED)
    return found


def _outcomes(run: Run, services: Services, rows: Sequence[Row]) -> Outcomes:
    """The first skill's probability and whether it is right. A near miss counts if its owner is
    known or the skill that should not trigger comes first: otherwise the first may be right."""
    found = []
    ranked = run.rank(services, rows)
    for row in rows:
        one = ranked[row["task_id"]]
        if one.first is None or not one.ids:
            continue
        wrong = row.get("not_skill_ids", [])
        if wrong and not row.get("owner") and one.ids[0] not in wrong:
            continue
        right = {*row.get("gt_skill_ids", ()), *row.get("also", ()), row.get("owner")}
        labelled = (wrong or row["gt_skill_ids"])[0]
        found.append((one.first, one.ids[0] in right, run.data.repository(labelled)))
    return found


def _calibration(outcomes: Outcomes, by: str = "") -> dict[str, Any]:
    """Bins of a reliability plot, and the expected calibration error (Naeini et al., AAAI 2015)."""
    predicted = np.array([one for one, _, _ in outcomes])
    right = np.array([one for _, one, _ in outcomes], dtype=np.float64)
    place = np.minimum((predicted * BINS).astype(int), BINS - 1)
    rows = np.zeros((len(outcomes), 3, BINS))
    everything = np.arange(len(outcomes))
    for column, values in enumerate((predicted, right, np.ones(len(outcomes)))):
        rows[everything, column, place] = values
    bins = [
        {
            "predicted": round(one.predicted, 4),
            "observed": round(one.observed, 4),
            "count": one.count,
        }
        for one in reliability_bins(predicted.tolist(), [one for _, one, _ in outcomes], BINS)
    ]
    flat = rows.reshape(len(outcomes), -1)
    groups = [one for _, _, one in outcomes]
    return {"error": make_figure(flat, groups, _calibration_error, by), "bins": bins}


def _calibration_error(sums: Floats) -> Floats:
    by_bin = sums.reshape(len(sums), 3, BINS)
    gaps = np.abs(by_bin[:, 0] - by_bin[:, 1]).sum(axis=1)
    return np.asarray(gaps / by_bin[:, 2].sum(axis=1))


def _refusals(run: Run, services: Services, kind: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Shares answered NO_SKILL_HIT: in the whole library, and in the sources without the skills."""
    rows = with_skills(rows)
    others = tuple(sorted(set(run.data.sources) - needed_sources(rows)))
    if not rows:
        return {}
    long = kind == "tasks"
    groups = [
        row["task_id"] if long else run.data.repository(row["gt_skill_ids"][0]) for row in rows
    ]
    found = {f"{kind} with their skills": mean_figure(_refused(services, rows, ()), groups)}
    if others:
        values = _refused(services, rows, others)
        found[f"{kind} without their skills"] = mean_figure(values, groups)
    return found


def _refused(services: Services, rows: Sequence[Row], sources: tuple[str, ...]) -> list[float]:
    filters = QueryFilters(source=sources)
    return [
        float(
            answer_query(
                services,
                Deadline(QUERY.time_limit),
                row["task_id"],
                QueryAsked(task=row["instruction"], filters=filters),
            ).bundle.status
            == "NO_SKILL_HIT"
        )
        for row in rows
    ]


def render(found: Mapping[str, Any]) -> dict[str, str]:
    """The tables; without probabilities only NO_SKILL_HIT."""
    refusals = found.get("no_skill_hit", {})
    blocks = {"no_skill_hit": pair_table("answered NO_SKILL_HIT", list(refusals.items()))}
    if calibration := found.get("calibration"):
        errors = {
            column: calibration[column]["error"] for column in COLUMNS if column in calibration
        }
        rows = [("expected calibration error of the first skill", errors)]
        blocks["calibration"] = pair_table("probability", rows)
    return blocks


def plots(found: Mapping[str, Any]) -> dict[str, Callable[[], bytes]]:
    """Reliability, where probabilities were measured."""
    calibration = found.get("calibration")
    if not calibration:
        return {}
    bins = {column: calibration[column]["bins"] for column in COLUMNS if column in calibration}
    return {"reliability": partial(draw_reliability, bins)}
