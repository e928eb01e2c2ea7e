"""Labelled prompts as cases of the probabilities that ranked skills are right."""

from __future__ import annotations

import functools
import json
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from config.load_settings import load_settings
from graph.records import LinkType
from search.scoring.probability import RIVALS, RankedEvidence, compute_features
from skills.events import QueryAsked, QueryFilters
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_skills
from tasks.query.ranking import Ranking, collect_evidence
from tasks.services import Services
from workers.backend.embedded import EmbeddedBackend

Floats = npt.NDArray[np.float64]
PRESENT, NEAR, REMOVED, ABSENT = "present", "near miss", "removed", "absent"
COPY = 0.75
"""Weight of an alternative from which on it counts as a copy of a removed skill."""


@dataclass(frozen=True)
class Case:
    """One asked prompt.

    prompt: its task or query id, "" if it has none. skill_id: the labelled skill. right: of the
    first candidates, (n,). judged: whether the label of the first one is certain.
    """

    kind: str
    prompt: str
    skill_id: str
    collection: str
    evidence: RankedEvidence
    right: tuple[bool, ...]
    judged: bool

    @functools.cached_property
    def features(self) -> Floats:
        """Features of its candidates."""
        return compute_features(self.evidence)

    @property
    def long(self) -> bool:
        """Whether it counts as a long task."""
        return self.evidence.long_task_weight >= 0.5


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of any of the formats, with the names of the first."""
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        near = row.get("style") == "near_miss"
        named = [row["skill_id"]] if row.get("skill_id") else []
        yield {
            "id": row.get("task_id") or row.get("query_id") or "",
            "text": row.get("instruction") or row.get("query") or row["prompt"],
            "right": [] if near else [*(row.get("gt_skill_ids") or named), *row.get("also", [])],
            "wrong": row.get("not_skill_ids") or (named if near else []),
            "owner": row.get("owner") or "",
            "file": path.stem,
        }


def find_repository(skill_id: str) -> str:
    """The repository of a skill whose path begins with owner__name, else the skill itself."""
    owner, found, rest = skill_id.partition(":")[2].partition("__")
    return f"{owner}/{rest.partition('__')[0]}" if found else skill_id


def ask(services: Services, text: str, source: str = "") -> Ranking:
    """The ranking of a task, nothing withheld."""
    filters = QueryFilters(source=(source,) if source else ())
    request = QueryAsked(task=text, filters=filters, without=("select", "rewrite"))
    return rank_skills(QueryContext.create(services, request, apply_policy=False))


def find_copies(services: Services, skill_ids: Sequence[str]) -> set[str]:
    """The skills and their near-copies."""
    rows = services.graph.get_adjacency(skill_ids, 50)
    copies = {
        neighbour.skill_id
        for row in rows.values()
        for neighbour in row.neighbours
        if neighbour.type is LinkType.ALTERNATIVE and neighbour.weight >= COPY
    }
    return copies | set(skill_ids)


def make_cases(services: Services, row: dict[str, Any], elsewhere: str) -> Iterator[Case]:
    """The prompt as it is, without its skills, and asked elsewhere."""
    statistics = services.library.refresh().statistics
    ranking = ask(services, row["text"])
    labelled = (row["right"] or row["wrong"])[0]
    collection = f"{labelled.partition(':')[0]}/{row['file']}"

    def case(kind: str, asked: Ranking, right: set[str], judged: bool = True) -> Case | None:
        if not asked.hits:
            return None
        marks = tuple(hit.key.skill_id in right for hit in asked.hits[:RIVALS])
        evidence = collect_evidence(asked, statistics, services.library.records)
        return Case(kind, row["id"], labelled, collection, evidence, marks, judged)

    made: list[Case | None] = []
    if row["wrong"]:
        first = ranking.hits[0].key.skill_id if ranking.hits else ""
        judged = bool(row["owner"]) or first in row["wrong"]
        made.append(case(NEAR, ranking, {row["owner"]}, judged))
    else:
        made.append(case(PRESENT, ranking, set(row["right"])))
        gone = find_copies(services, row["right"])
        left = tuple(hit for hit in ranking.hits if hit.key.skill_id not in gone)
        made.append(case(REMOVED, replace(ranking, hits=left), set()))
        if elsewhere and ranking.long_task_weight >= 0.5:
            made.append(case(ABSENT, ask(services, row["text"], elsewhere), set()))
    yield from filter(None, made)


def read_cases(home: Path, files: Sequence[Path], elsewhere: str, kept: Path | None) -> list[Case]:
    """All cases, from the file that keeps them if there is one."""
    if kept is not None and kept.exists():
        cases: list[Case] = pickle.loads(kept.read_bytes())
        return cases
    backend = EmbeddedBackend(load_settings(home), writable=False)
    cases = []
    for file in files:
        for row in read_rows(file):
            cases += make_cases(backend.services, row, elsewhere)
        print(f"asked {file.name}: {len(cases)} cases", file=sys.stderr, flush=True)
    backend.stop()
    if kept is not None:
        kept.write_bytes(pickle.dumps(cases))
    return cases
