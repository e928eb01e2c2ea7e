"""Measures what the language model is worth in queries, with recorded answers.

    python -m tests.bench.replay_queries --home HOME --tasks tasks.jsonl --answers answers.jsonl
        [--stages select] [--bundles]

Ranks the tasks without the model and with it. The answers come over HTTP from a server on loopback,
so that the client, the checks of answers and the stages are those of production. With `--bundles`
the bundles of 8,000 tokens are compared too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from skills.events import QueryAsked
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.policies import Deadline
from tasks.query.context import QueryContext
from tasks.query.pipeline import answer_query, rank_skills
from tasks.services import Lazy, Services
from tests.bench.recorded_queries import open_services
from tests.support.program.recorded import RecordedAnswers
from tests.support.servers.language_model import LanguageModelServer
from workers.evaluation.metrics import routing_metrics
from workers.evaluation.predictions import read_jsonl

_SECONDS = 600.0
_BUDGET = 8_000

Tasks = Sequence[Mapping[str, Any]]


def rank(services: Services, tasks: Tasks) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """The ranked ids by task, and the reports of the model's calls with what was degraded."""
    ranked, reports = {}, []
    for task in tasks:
        request = QueryAsked(task=task["instruction"])
        context = QueryContext.create(services, request, Deadline(_SECONDS), degrade=False)
        ranked[task["task_id"]] = [hit.key.skill_id for hit in rank_skills(context).hits[:100]]
        reports.append(
            {"task_id": task["task_id"], "degraded": context.degradations.reasons}
            | context.model_calls.reports
        )
    return ranked, reports


def bundle(services: Services, tasks: Tasks) -> dict[str, float]:
    """Of bundles: the share with every needed skill, their skills and their tokens on average."""
    complete = skills = tokens = 0
    for task in tasks:
        request = QueryAsked(task=task["instruction"], budget=_BUDGET)
        made, _ = answer_query(services, Deadline(_SECONDS), task["task_id"], request)
        complete += set(task["gt_skill_ids"]) <= {skill.skill_id for skill in made.skills}
        skills += len(made.skills)
        tokens += made.tokens
    count = len(tasks)
    return {"complete": complete / count, "skills": skills / count, "tokens": tokens / count}


def summarise(needed: Mapping[str, Sequence[str]], ranked: Mapping[str, list[str]]) -> Any:
    """The metrics that the stages are judged by."""
    all_of_them = routing_metrics(needed, ranked)
    names = ("Hit@1", "MRR@10", "R@5", "R@10", "R@50", "FC@10")
    first_five = sum(
        any(name in wanted for name in ranked[task][:5]) for task, wanted in needed.items()
    )
    found = {name: round(all_of_them[name], 4) for name in names if name in all_of_them}
    return found | {"any in 5": round(first_five / len(needed), 4)}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--answers", type=Path, nargs="+", required=True)
    parser.add_argument("--stages", nargs="+", default=["select"])
    parser.add_argument("--bundles", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    tasks = read_jsonl(given.tasks, ("task_id", "instruction", "gt_skill_ids"))
    needed = {task["task_id"]: task["gt_skill_ids"] for task in tasks}
    answers = RecordedAnswers.read(*given.answers)
    with LanguageModelServer(answers) as server:
        settings = server.settings(stages=tuple(given.stages), query_milliseconds=60_000)
        with (
            open_services(given.home, settings) as services,
            closing(OpenAILanguageModel(settings)) as model,
        ):
            with_model = replace(services, language_model=Lazy(lambda: model), answers=None)
            without = replace(services, language_model=None, answers=None)
            ranked, reports = rank(with_model, tasks)
            before, _ = rank(without, tasks)
            report = {
                "tasks": len(tasks),
                "without": summarise(needed, before),
                "with": summarise(needed, ranked),
            }
            if given.bundles:
                report["bundles without"] = bundle(without, tasks)
                report["bundles with"] = bundle(with_model, tasks)
            report["not recorded"] = len(answers.unknown)
    print(json.dumps(report, indent=2))
    if given.out:
        rows = {"before": before, "ranked": ranked, "reports": reports}
        given.out.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
