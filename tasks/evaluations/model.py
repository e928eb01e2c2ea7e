"""Stored run of `skillbus eval`: its measures, and the skills found for each prompt."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

MAX_TASK_CHARACTERS = 2_000
"""Maximum characters of a task that are stored."""

MAX_FOUND = 10
"""Maximum skills that are stored per prompt: the best ones found."""

MAX_PROMPTS = 5_000
"""Maximum prompts that are stored of a run: the first ones. Its measures are over all prompts."""

PURGED = "purged"
"""Replaces the id of a purged skill."""


class Measure(NamedTuple):
    """A mean, or another statistic of a sample, with its 95% interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EvaluatedPrompt:
    """A labelled prompt with the skills that were found for it.

    needed: ids of the skills that are right. found: the best MAX_FOUND ids. ranks: rank of each
    needed skill, from 1; 0 if it was not found. values: by measure, of this prompt alone.
    probability: that the first found skill is right, None if it was not estimated. owner: the token
    that labelled the prompt, None for a prompt of a file. asked: when the prompt was sent, in
    seconds since the epoch; 0 for a prompt of a file.
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
    """Description of a run.

    kind: `routing`, `bundles` or `outcomes`. name: of the file with the tasks. made: seconds since
    the epoch. version: of skillbus. skills: number of published skills. tasks: number of evaluated
    tasks. without: stages that were switched off. settings: settings of ranking and choice that
    differ from the defaults, by section.
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


def load_prompts(data: bytes, naming: str = "") -> tuple[EvaluatedPrompt, ...]:
    """Return stored prompts.

    naming: a text, such as an id. If no prompt has it, none is returned, which is many times as
    fast.
    """
    text = zlib.decompress(data).decode("utf-8", "surrogatepass")
    if json.dumps(naming, ensure_ascii=False)[1:-1] not in text:
        return ()
    return tuple(_load_prompt(row) for row in json.loads(text))


def _load_prompt(row: dict[str, Any]) -> EvaluatedPrompt:
    for name in ("needed", "found", "ranks"):
        row[name] = tuple(row[name])
    return EvaluatedPrompt(**row)
