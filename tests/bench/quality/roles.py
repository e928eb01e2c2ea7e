"""Section *roles*: the role of every line of labelled skills, by collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skills.record import Role
from tests.bench.quality.figures import (
    COLUMNS,
    CROSS_VALIDATED,
    Figure,
    make_figure,
    pair_table,
)
from tests.bench.quality.run import Run
from workers.evaluation.intervals import Floats
from workers.evaluation.predictions import predict_roles

ROLES = tuple(role.value for role in Role)
COUNT = len(ROLES)

RoleRanges = Mapping[str, Sequence[tuple[int, int, str]]]


def measure(run: Run) -> dict[str, Any]:
    """Accuracy and macro-F1 by column and collection, resampled by skill."""
    gold = {column: run.data.roles(column) for column in COLUMNS}
    queries = {row["skill_id"] for row in run.data.all_labels("queries.jsonl")}
    labelled = sorted(queries.union(*gold.values()))
    found: dict[str, Any] = {}
    with run.open_part("labelled", labelled, embedded=True) as services:
        for column in COLUMNS:
            if gold[column]:
                given = predict_roles(services, list(gold[column]))
                found[column] = _figures(run, gold[column], given, "")
    predicted = run.data.predictions("roles.json")
    if predicted is not None and "left_out" not in found:
        known = {name: ranges for name, ranges in gold["dev"].items() if name in predicted}
        found["left_out"] = _figures(run, known, predicted, CROSS_VALIDATED)
    return found


def _figures(
    run: Run, gold: RoleRanges, given: RoleRanges, by: str
) -> dict[str, dict[str, Figure]]:
    parts: dict[str, list[str]] = {"all": list(gold)}
    for skill_id in gold:
        parts.setdefault(run.data.collection(skill_id), []).append(skill_id)
    confusions = {name: count_confusions(gold[name], given.get(name, ())) for name in gold}
    found = {}
    for name, skills in parts.items():
        rows = np.stack([confusions[one].ravel() for one in skills])
        found[name] = {
            "accuracy": make_figure(rows, skills, _accuracy, by),
            "macro-F1": make_figure(rows, skills, _macro_f1, by),
        }
    return found


def count_confusions(
    gold: Sequence[tuple[int, int, str]], given: Sequence[tuple[int, int, str]]
) -> Floats:
    """Lines by true and given role (COUNT, COUNT + 1); the last column is for no role."""
    guesses = {line: role for first, last, role in given for line in range(first, last + 1)}
    found = np.zeros((COUNT, COUNT + 1))
    for first, last, role in gold:
        for line in range(first, last + 1) if role in ROLES else ():
            guess = guesses.get(line, "")
            found[ROLES.index(role), ROLES.index(guess) if guess in ROLES else COUNT] += 1
    return found


def _accuracy(sums: Floats) -> Floats:
    table = sums.reshape(-1, COUNT, COUNT + 1)
    right = np.trace(table[:, :, :COUNT], axis1=1, axis2=2)
    return np.asarray(right / table.sum(axis=(1, 2)))


def _macro_f1(sums: Floats) -> Floats:
    table = sums.reshape(-1, COUNT, COUNT + 1)
    right = np.diagonal(table[:, :, :COUNT], axis1=1, axis2=2)
    both = table.sum(axis=2) + table.sum(axis=1)[:, :COUNT]
    return np.asarray((2 * right / np.maximum(both, 1)).mean(axis=1))


def render(found: Mapping[str, Any]) -> dict[str, str]:
    """One table; its cases are skills."""
    names = list(dict.fromkeys(name for column in found.values() for name in column))
    rows = [
        (
            f"{name}, {measured}",
            {c: found[c][name][measured] for c in COLUMNS if name in found.get(c, {})},
        )
        for name in names
        for measured in ("accuracy", "macro-F1")
    ]
    return {"table": pair_table("roles of lines", rows)}
