"""Makes a run, to be kept, from the results of an evaluation."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from config.settings import Settings
from tasks.evaluations.model import (
    MAX_FOUND,
    MAX_PROMPTS,
    MAX_TASK_CHARACTERS,
    EvaluatedPrompt,
    Evaluation,
    EvaluationSummary,
    Measure,
)
from workers.evaluation.ablation import METRICS
from workers.evaluation.bundles import BundleOutcome
from workers.evaluation.intervals import bootstrap_interval
from workers.evaluation.metrics import routing_metrics_by_task
from workers.evaluation.predictions import RankedTask

_SECTIONS = (
    "encoder",
    "ranker",
    "reranker",
    "retrieval",
    "diffusion",
    "choice",
    "passages",
    "policy",
    "learning",
)
"""Sections of the settings that affect the results. None of them has a secret."""

_LANGUAGE_MODEL = (
    "model",
    "query_milliseconds",
    "stages",
    "select_candidates",
    "select_margin",
    "rewrite_queries",
    "search_terms",
)
"""Settings of the language model that affect the results: no address, as readers see them."""


def evaluate_prompt(
    ranked: RankedTask,
    task: str,
    needed: Sequence[str],
    owner: str | None = None,
    asked: float = 0.0,
    scored: Sequence[str] = (),
) -> EvaluatedPrompt:
    """Return a prompt with its ranking; without needed skills it has no values.

    scored: the ranking to score, of `credit_also`, if it differs.
    """
    ids, needed = scored or ranked.skill_ids, tuple(dict.fromkeys(needed))
    place = {skill_id: rank for rank, skill_id in enumerate(ids, 1)}
    values: dict[str, float] = {}
    if needed:
        row = routing_metrics_by_task({"": needed}, {"": ids})[""]
        values = {name: row[name] for name in METRICS}
    return EvaluatedPrompt(
        prompt_id=ranked.task_id,
        task=task[:MAX_TASK_CHARACTERS],
        needed=needed,
        found=tuple(ranked.skill_ids[:MAX_FOUND]),
        ranks=tuple(place.get(one, 0) for one in needed),
        values=values,
        probability=ranked.probability,
        owner=owner,
        asked=asked,
    )


def evaluate_bundle_prompt(
    row: Mapping[str, Any], given: Mapping[int, BundleOutcome]
) -> EvaluatedPrompt:
    """Return a task with the skills of its bundles; `found` are those at the largest budget.

    given: outcome by budget.
    """
    needed = tuple(dict.fromkeys(row["gt_skill_ids"]))
    values: dict[str, float] = {}
    for budget, outcome in given.items():
        held = set(needed).intersection(outcome.skills)
        if needed:
            values[f"complete@{budget}"] = float(len(held) == len(needed))
            values[f"recall@{budget}"] = len(held) / len(needed)
        else:
            values[f"true_no_hit@{budget}"] = float(outcome.no_hit)
    found = given[max(given)].skills
    place = {skill_id: rank for rank, skill_id in enumerate(found, 1)}
    return EvaluatedPrompt(
        prompt_id=row["task_id"],
        task=row["instruction"][:MAX_TASK_CHARACTERS],
        needed=needed,
        found=found[:MAX_FOUND],
        ranks=tuple(place.get(one, 0) for one in needed),
        values=values,
    )


def make_run(
    kind: str,
    name: str,
    settings: Settings,
    skills: int,
    without: Sequence[str],
    prompts: Sequence[EvaluatedPrompt],
) -> Evaluation:
    """Return the run of an evaluation, made now. skills: number of published skills."""
    return Evaluation(
        EvaluationSummary(
            evaluation_id=uuid.uuid4().hex,
            kind=kind,
            name=name,
            made=time.time(),
            version=version("skillbus"),
            skills=skills,
            tasks=len(prompts),
            without=tuple(without),
            settings=describe_settings(settings),
            measures=measure(prompts),
        ),
        tuple(prompts[:MAX_PROMPTS]),
    )


def measure(prompts: Sequence[EvaluatedPrompt]) -> dict[str, Measure]:
    """Return the mean of each value with its interval, over the prompts that have it."""
    names = dict.fromkeys(name for prompt in prompts for name in prompt.values)
    return {
        name: bootstrap_interval([one.values[name] for one in prompts if name in one.values])
        for name in names
    }


def describe_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that affect the results and differ from the defaults, by section."""
    include = dict.fromkeys(_SECTIONS, True) | {"language_model": set(_LANGUAGE_MODEL)}
    found = settings.model_dump(mode="json", include=include, exclude_defaults=True)
    return {name: values for name, values in sorted(found.items()) if values}
