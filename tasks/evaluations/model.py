"""A kept run of `skillbus eval`: its measures, and what was found for each prompt."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

MAX_TASK_CHARACTERS = 2_000
"""Characters of a task that are kept."""

MAX_FOUND = 10
"""Skills that are kept of what was found for a prompt, best first."""

MAX_PROMPTS = 5_000
"""Prompts that are kept of a run: the first ones. Its measures are of all."""

PURGED = "purged"
"""Stands for the id of a skill that was purged."""


class Measure(NamedTuple):
    """A mean over prompts with its 95% interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EvaluatedPrompt:
    """A labelled prompt with what was found for it.

    needed: ids of the skills that are right. found: the best MAX_FOUND ids. ranks: of each needed
    skill, from 1; 0 where it was not found. values: by measure, of this prompt alone. probability:
    that the first found skill is right, None where none was estimated. owner: the token that
    labelled it, None for a prompt of a file. asked: when, in seconds since the epoch; 0 likewise.
    """

    prompt_id: str
    task: str
    needed: tuple[str, ...]
    found: tuple[str, ...]
    ranks: tuple[int, ...]
    values: Mapping[str, float]
    probability: float | None = None
    owner: str | None = None
    asked: float = 0.0


@dataclass(frozen=True, slots=True)
class EvaluationSummary:
    """What a run was of.

    kind: `routing`, `bundles` or `outcomes`. name: of the file with the tasks. made: seconds since
    the epoch. version: of skillbus. skills: number of published ones. tasks: number of those that
    were evaluated. without: stages that were switched off. settings: those of ranking and choice
    that differ from the defaults, by section.
    """

    evaluation_id: str
    kind: str
    name: str
    made: float
    version: str
    skills: int
    tasks: int
    without: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    measures: Mapping[str, Measure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A run with its prompts, at most MAX_PROMPTS."""

    summary: EvaluationSummary
    prompts: tuple[EvaluatedPrompt, ...]


def dump_summary(summary: EvaluationSummary) -> str:
    """Return a summary as it is stored."""
    return json.dumps(asdict(summary), ensure_ascii=False)


def load_summary(text: str | bytes) -> EvaluationSummary:
    """Return a stored summary."""
    data = json.loads(text)
    data["without"] = tuple(data["without"])
    data["measures"] = {name: Measure(*value) for name, value in data["measures"].items()}
    return EvaluationSummary(**data)


def dump_prompts(prompts: tuple[EvaluatedPrompt, ...]) -> bytes:
    """Return prompts as they are stored, compressed."""
    text = json.dumps([asdict(one) for one in prompts], ensure_ascii=False)
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 6)


def load_prompts(data: bytes) -> tuple[EvaluatedPrompt, ...]:
    """Return stored prompts."""
    rows = json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))
    return tuple(_load_prompt(row) for row in rows)


def _load_prompt(row: dict[str, Any]) -> EvaluatedPrompt:
    for name in ("needed", "found", "ranks"):
        row[name] = tuple(row[name])
    return EvaluatedPrompt(**row)
