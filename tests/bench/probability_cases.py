"""Labelled prompts as cases of the probabilities that ranked skills are right."""

from __future__ import annotations

import functools
import pickle
import random
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
from skills.access import UNRESTRICTED, Reader
from skills.events import QueryAsked, QueryFilters
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_skills
from tasks.query.ranking import Ranking, collect_evidence
from tasks.query.session.state import Asker
from tasks.services import Services
from workers.backend.embedded import EmbeddedBackend
from workers.evaluation.predictions import read_jsonl

Floats = npt.NDArray[np.float64]
PRESENT, NEAR, REMOVED, ABSENT, GENERAL = "present", "near miss", "removed", "absent", "general"
ASKED_OF_EACH = 40
"""Prompts with their skill, and as many without, that are asked of each small library."""

COPY = 0.75
"""Weight of an alternative from which on it counts as a copy of a removed skill."""


@dataclass(frozen=True)
class Case:
    """One asked prompt.

    prompt: its task or query id, "" if it has none. skill_id: the labelled skill, or the text of a
    general prompt. right: of the first candidates, (n,). judged: whether the label of the first one
    is certain. library: the small library that was asked, "" for the large one.
    """

    kind: str
    prompt: str
    skill_id: str
    collection: str
    evidence: RankedEvidence
    right: tuple[bool, ...]
    judged: bool
    library: str = ""

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
    for row in read_jsonl(path, ()):
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


def read_repositories(index: Path | None) -> dict[str, str]:
    """Repository by skill, of a file with objects that have id and repo; empty without a file."""
    rows = read_jsonl(index, ("id", "repo")) if index else []
    return {row["id"]: row["repo"] for row in rows}


def ask(services: Services, text: str, source: str = "", group: str = "") -> Ranking:
    """The ranking of a task, nothing withheld; of one source, or of the library of a group."""
    filters = QueryFilters(source=(source,) if source else ())
    request = QueryAsked(task=text, filters=filters, without=("select", "rewrite"))
    reader = Reader(frozenset({group})) if group else UNRESTRICTED
    asker = Asker("", 0.0, reader)
    return rank_skills(QueryContext.create(services, request, asker=asker, apply_policy=False))


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


def make_case(
    services: Services,
    kind: str,
    row: dict[str, Any],
    asked: Ranking,
    right: set[str],
    judged: bool = True,
    library: str = "",
) -> Iterator[Case]:
    """One case of a ranking, none if it is empty."""
    if not asked.hits:
        return
    labelled = (row["right"] or row["wrong"] or [row["text"]])[0]
    source = labelled.partition(":")[0] if row["right"] or row["wrong"] else GENERAL
    published = services.library
    if library:
        published = published.restricted_to(frozenset({library}))
    evidence = collect_evidence(asked, published.latest.statistics, services.library.records)
    marks = tuple(hit.key.skill_id in right for hit in asked.hits[:RIVALS])
    collection = f"{source}/{row['file']}"
    yield Case(kind, row["id"], labelled, collection, evidence, marks, judged, library)


def make_cases(services: Services, row: dict[str, Any], elsewhere: str) -> Iterator[Case]:
    """The prompt as it is, without its skills, and asked elsewhere."""
    services.library.refresh()
    ranking = ask(services, row["text"])
    if row["wrong"]:
        first = ranking.hits[0].key.skill_id if ranking.hits else ""
        judged = bool(row["owner"]) or first in row["wrong"]
        yield from make_case(services, NEAR, row, ranking, {row["owner"]}, judged)
        return
    yield from make_case(services, PRESENT, row, ranking, set(row["right"]))
    gone = find_copies(services, row["right"])
    left = tuple(hit for hit in ranking.hits if hit.key.skill_id not in gone)
    yield from make_case(services, REMOVED, row, replace(ranking, hits=left), set())
    has_them = any(skill_id.startswith(f"{elsewhere}:") for skill_id in row["right"])
    if elsewhere and not has_them and ranking.long_task_weight >= 0.5:
        yield from make_case(services, ABSENT, row, ask(services, row["text"], elsewhere), set())


def read_general(path: Path) -> list[dict[str, Any]]:
    """Prompts about no skill, one a line, as rows."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        {"id": "", "text": line, "right": [], "wrong": [], "owner": "", "file": path.stem}
        for line in filter(str.strip, lines)
    ]


def ask_library(
    services: Services, library: str, rows: Sequence[dict[str, Any]], general: Sequence[Any]
) -> Iterator[Case]:
    """Prompts of a small library: with their skill, without it, and general ones.

    library: a source that only the group of the same name sees. Its skills have the folders that
    they have in the large library.
    """
    drawn = random.Random(library)
    own = {
        skill_id.partition(":")[2]
        for skill_id in services.library.refresh().pointers
        if skill_id.startswith(f"{library}:")
    }

    def find_right(row: dict[str, Any]) -> set[str]:
        folders = {skill_id.partition(":")[2] for skill_id in row["right"]}
        return {f"{library}:{folder}" for folder in folders & own}

    asked = [row for row in rows if row["right"]]
    present = [row for row in asked if find_right(row)]
    absent = [row for row in asked if not find_right(row)]
    for kind, some in ((PRESENT, present), (ABSENT, absent), (GENERAL, list(general))):
        for row in drawn.sample(some, min(ASKED_OF_EACH, len(some))):
            ranking = ask(services, row["text"], group=library)
            yield from make_case(services, kind, row, ranking, find_right(row), library=library)


def read_cases(
    home: Path,
    files: Sequence[Path],
    elsewhere: str,
    kept: Path | None,
    libraries: Path | None = None,
    general: Path | None = None,
) -> list[Case]:
    """All cases, from the file that keeps them if there is one."""
    if kept is not None and kept.exists():
        cases: list[Case] = pickle.loads(kept.read_bytes())
        return cases
    backend = EmbeddedBackend(load_settings(home), writable=False)
    cases = []
    rows = [row for file in files for row in read_rows(file)]
    none = read_general(general) if general else []
    for row in rows:
        cases += make_cases(backend.services, row, elsewhere)
    for row in none:
        ranking = ask(backend.services, row["text"])
        cases += make_case(backend.services, GENERAL, row, ranking, set())
    backend.stop()
    print(f"asked the large library: {len(cases)} cases", file=sys.stderr, flush=True)
    if libraries is not None:
        backend = EmbeddedBackend(load_settings(libraries), writable=False)
        for source in backend.graph.list_sources():
            cases += ask_library(backend.services, source.source_id, rows, none)
        backend.stop()
        print(f"asked the small ones: {len(cases)} cases", file=sys.stderr, flush=True)
    if kept is not None:
        kept.write_bytes(pickle.dumps(cases))
    return cases
