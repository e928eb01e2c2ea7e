"""Section *links*: how many of the links that the rules give are right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.quality.figures import mean_figure, pair_table
from tests.bench.quality.run import Run
from workers.evaluation.predictions import read_jsonl

LABELS = Path(__file__).resolve().parents[2] / "data" / "links.jsonl"
MEANINGS = {
    "dependency": "correct",
    "workflow": "correct",
    "alternative": "correct",
    "semantic": "useful together",
}


def measure(run: Run) -> dict[str, Any]:
    """Share of the labelled links of each type that are right, resampled by repository.

    The labels are of links drawn at random from what the rules gave in a library of 12,000
    skills; no rule was changed for them afterwards but two exclusions.
    """
    rows = read_jsonl(LABELS, ("source", "draw", "type", "label"))
    drawn = [row for row in rows if row["draw"] == "present"]
    found = {}
    for kind in MEANINGS:
        mine = [row for row in drawn if row["type"] == kind]
        groups = [run.data.repository(row["source"]) for row in mine]
        right = [float(row["label"] == "right") for row in mine]
        found[kind] = {"dev": mean_figure(right, groups)}
    other = [float(r["label"] == "alternative") for r in drawn if r["type"] == "semantic"]
    found["semantic, alternatives"] = {"dev": mean_figure(other, groups)}
    return found


def render(found: Mapping[str, Any]) -> dict[str, str]:
    """One table."""
    rows = [(f"{kind}: {meaning}", found[kind]) for kind, meaning in MEANINGS.items()]
    rows.append(("semantic: alternatives instead", found["semantic, alternatives"]))
    return {"table": pair_table("links", rows)}
