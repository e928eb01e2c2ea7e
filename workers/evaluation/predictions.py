"""Predictions to evaluate: rankings and roles; and the JSONL files of labelled data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from config.errors import UsageError
from search.protocol import StoredRevision
from skills.events import QueryAsked
from skills.record import ParsedSkill, RevisionKey, Role
from skills.roles import RoleClassifier, classify_passages
from tasks.policies import Deadline
from tasks.query.context import QueryContext, check_stages
from tasks.query.pipeline import rank_skills
from tasks.refine.roles.role_overlay import overlay_roles
from tasks.services import Services
from workers.evaluation.ask import SECONDS
from workers.library.user_files import read_text

MAX_RANKED = 100
_MAX_WEIGHT = 1_000
_IDS = frozenset({"task_id", "query_id"})


def read_jsonl(path: Path, fields: Sequence[str]) -> list[dict[str, Any]]:
    """Read the objects of a JSONL file; raises UsageError with the number of an invalid line.

    `task_id` and `query_id` are unique: predictions are kept by them.
    """
    rows = []
    lines: dict[tuple[str, str], int] = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as reason:
            raise UsageError(f"{path}:{number}: not JSON: {reason}") from None
        error = _row_error(row, fields)
        if error:
            raise UsageError(f"{path}:{number}: {error}")
        for name in _IDS.intersection(fields):
            first = lines.setdefault((name, row[name]), number)
            if first != number:
                raise UsageError(
                    f"{path}:{number}: {name} {row[name]!r} is that of line {first} too; "
                    "give each line its own"
                )
        rows.append(row)
    if not rows:
        raise UsageError(
            f"{path} is empty; expected one JSON object per line with {', '.join(fields)}"
        )
    return rows


def _row_error(row: object, fields: Sequence[str]) -> str:
    """Return why a line is invalid, "" if it is valid; lists of skill ids and the weight are
    checked if present."""
    if not isinstance(row, dict) or not all(name in row for name in fields):
        missing = [name for name in fields if not isinstance(row, dict) or name not in row]
        return f"missing {', '.join(missing)}"
    for name in ("gt_skill_ids", "also"):
        ids = row.get(name, [])
        if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
            return f"{name} must be a list of skill ids"
    weight = row.get("weight", 1)
    if type(weight) not in (int, float) or not 0 <= weight <= _MAX_WEIGHT:
        return f"weight must be a number from 0 to {_MAX_WEIGHT}"
    wrong = [n for n in fields if n != "gt_skill_ids" and not isinstance(row[n], str)]
    if wrong:
        return f"{', '.join(wrong)} must be text"
    texts = {name: row[name] for name in fields if isinstance(row[name], str)}
    # A task of NUL alone is empty to a query, too.
    empty = [name for name, text in texts.items() if not text.replace("\0", " ").strip()]
    if empty:
        return f"{', '.join(empty)} must not be empty"
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "has a lone surrogate (\\ud800 to \\udfff), which is no character"
    return ""


def right_skills(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the distinct skills that serve a labelled task: `gt_skill_ids`, then `also`."""
    return tuple(dict.fromkeys((*row["gt_skill_ids"], *row.get("also", ()))))


class RankedTask(NamedTuple):
    """Ranking of a task.

    skill_ids: the best MAX_RANKED ids before skills are chosen. probability: that the first one is
    right, None if unknown. milliseconds: by stage.
    """

    task_id: str
    skill_ids: list[str]
    probability: float | None
    milliseconds: dict[str, float]


def rank_tasks(
    services: Services, tasks: Sequence[dict[str, Any]], without: tuple[str, ...]
) -> Iterator[RankedTask]:
    """Rank the library for each task in turn."""
    check_stages(without)
    for task in tasks:
        yield rank_task(services, task["task_id"], task["instruction"], without)


def rank_task(
    services: Services, task_id: str, instruction: str, without: tuple[str, ...]
) -> RankedTask:
    """Rank the library for one task."""
    request = QueryAsked(task=instruction, without=without)
    limit = Deadline(SECONDS)
    context = QueryContext.create(services, request, limit, degrade=False, wanted_seconds=SECONDS)
    hits = rank_skills(context).hits[:MAX_RANKED]
    return RankedTask(
        task_id,
        [hit.key.skill_id for hit in hits],
        hits[0].probability if hits else None,
        context.timings.milliseconds,
    )


def predict_roles(
    services: Services, skill_ids: Sequence[str], classifier: RoleClassifier | None = None
) -> dict[str, list[tuple[int, int, str]]]:
    """Return (first line, last line, role) of each skill, with its headings and frontmatter.

    classifier: None for the roles in the library, which are those of the language model if the
    settings say so, else of the local classifier.
    """
    revisions = read_published_revisions(services, skill_ids)
    if classifier is None:
        revisions = overlay_roles(services.answers, services.settings.language_model, revisions)
    found = {}
    for skill_id, revision in revisions.items():
        parsed = revision.parsed
        roles = [passage.role for passage in parsed.passages]
        if classifier is not None:
            verdicts = classify_passages(parsed.lines, parsed.sections, parsed.passages, classifier)
            roles = [role for role, _ in verdicts]
        found[skill_id] = role_ranges(parsed, roles)
    return found


def role_ranges(parsed: ParsedSkill, roles: Sequence[Role]) -> list[tuple[int, int, str]]:
    """Return (first line, last line, role) of passages, headings and front
    matter. roles: by passage."""
    ranges = [
        (passage.first_line, last_line_before_next(parsed, passage.index), role.value)
        for passage, role in zip(parsed.passages, roles, strict=True)
    ]
    ranges += [
        (section.heading_line, section.heading_line, "heading")
        for section in parsed.sections
        if section.heading_line
    ]
    if parsed.body_line > 1:
        ranges.append((1, parsed.body_line - 1, "frontmatter"))
    return sorted(ranges)


def last_line_before_next(parsed: ParsedSkill, index: int) -> int:
    """Return the line before the next passage of the section; blank lines belong
    to the passage before."""
    passage, following = parsed.passages[index], parsed.passages[index + 1 : index + 2]
    if following and following[0].section == passage.section:
        return following[0].first_line - 1
    return passage.last_line


def read_published_revisions(
    services: Services, skill_ids: Sequence[str]
) -> dict[str, StoredRevision]:
    """Return the published revisions of some skills; raises UsageError if one is not published."""
    pointers = services.library.refresh().pointers
    wanted = list(dict.fromkeys(skill_ids))
    missing = [skill_id for skill_id in wanted if skill_id not in pointers]
    if missing:
        raise UsageError(f"not published: {', '.join(missing[:5])}; see `skillbus skills list`")
    keys = [RevisionKey(skill_id, pointers[skill_id]) for skill_id in wanted]
    return {key.skill_id: found for key, found in services.index.get_revisions(keys).items()}


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile by the nearest-rank method. share: in [0, 1]."""
    ordered = sorted(values)
    rank = math.ceil(round(share * len(ordered), 6))  # .07 * 100 is a little more than 7
    return ordered[max(rank, 1) - 1]
