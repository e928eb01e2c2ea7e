"""Writes the prompts that queries send to a language model, so that a capable model can answer.

    python -m tests.bench.recorded_queries sample --tasks triggers.jsonl --out sample.jsonl
    python -m tests.bench.recorded_queries prompts --home HOME --tasks FILE --out prompts.jsonl

With several stages, the answers of the earlier ones are given: the prompts of later ones follow
from them.

`sample` chooses labelled prompts by hash, at most one per needed skill. `replay_queries` ranks the
same tasks with and without the recorded answers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from config.language_model_settings import LanguageModelSettings, ModelStage
from config.settings import Settings
from skills.events import QueryAsked
from tasks.language_model.protocol import (
    AnswerT,
    LanguageModel,
    ModelAnswer,
    ModelRequest,
    ModelUnavailableError,
)
from tasks.policies import Deadline
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_skills
from tasks.services import Lazy, Services
from tests.support.program.recorded import Prompt, RecordedAnswers, get_prompt_key, write_prompts
from workers.backend import stores
from workers.evaluation.predictions import read_jsonl

_SECONDS = 600.0
"""Time limit of a query here: no prompt may depend on how busy the machine is."""


class PromptCollector(LanguageModel):
    """Keeps the requests that no answer is recorded for."""

    def __init__(self, answers: RecordedAnswers) -> None:
        self._answers = answers.answers
        self.prompts: list[Prompt] = []

    @property
    @override
    def model(self) -> str:
        return "none"

    @override
    def complete(
        self,
        request: ModelRequest,
        answer_type: type[AnswerT],
        check: Callable[[AnswerT], None] | None = None,
    ) -> ModelAnswer[AnswerT]:
        answer = self._answers.get(get_prompt_key(request.instructions, request.data))
        if answer is not None:
            return ModelAnswer(answer_type.model_validate(answer))
        self.prompts.append(Prompt(request, answer_type))
        raise ModelUnavailableError("prompts are collected, not answered")

    @override
    def close(self) -> None:
        return


@contextmanager
def open_services(home: Path, language_model: LanguageModelSettings) -> Iterator[Services]:
    """The stores of a home, for reading."""
    settings = Settings(home=home, language_model=language_model)
    with ExitStack() as stack:
        yield stores.open_services(settings, stack, stores.send_nothing, writable=False)


def collect_prompts(
    home: Path,
    tasks: Sequence[Mapping[str, Any]],
    stages: Sequence[ModelStage],
    answers: RecordedAnswers,
) -> list[Prompt]:
    """The prompts of these stages of the queries for these tasks that have no recorded answer."""
    collector = PromptCollector(answers)
    settings = LanguageModelSettings(
        base_url="http://127.0.0.1:1/v1", model="none", stages=tuple(stages)
    )
    with open_services(home, settings) as services:
        collecting = replace(services, language_model=Lazy(lambda: collector), answers=None)
        for task in tasks:
            request = QueryAsked(task=task["instruction"])
            context = QueryContext.create(collecting, request, Deadline(_SECONDS), degrade=False)
            rank_skills(context)
    return collector.prompts


def sample_tasks(tasks: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """`count` tasks that need a skill, in the order of their hashes, at most one per skill."""
    chosen: dict[str, Mapping[str, Any]] = {}
    needing = [task for task in tasks if task.get("gt_skill_ids")]
    for task in sorted(needing, key=lambda one: hashlib.sha256(one["task_id"].encode()).digest()):
        chosen.setdefault(task["gt_skill_ids"][0], task)
    return list(chosen.values())[:count]


def main() -> None:
    """Run a subcommand; print a summary as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["prompts", "sample"])
    parser.add_argument("--stages", nargs="+", default=["select"])
    parser.add_argument("--answers", type=Path, nargs="*", default=[])
    parser.add_argument("--home", type=Path)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=110)
    given = parser.parse_args()
    tasks = read_jsonl(given.tasks, ("task_id", "instruction"))
    if given.what == "sample":
        chosen = sample_tasks(tasks, given.count)
        lines = [json.dumps(task, ensure_ascii=False) + "\n" for task in chosen]
        given.out.write_text("".join(lines), encoding="utf-8")
        print(json.dumps({"tasks": len(chosen)}))
    else:
        prompts = collect_prompts(
            given.home, tasks, given.stages, RecordedAnswers.read(*given.answers)
        )
        print(json.dumps({"prompts": write_prompts(given.out, prompts)}))


if __name__ == "__main__":
    main()
