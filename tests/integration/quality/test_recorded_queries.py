"""Recorded answers to the prompts of queries: each fits the form of today and holds no skill's
text, and the prompts are those that were answered.

What the answers are worth is measured by `tests/bench/replay_queries.py`, at a library that is too
large for tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.query.language_model.rewrite import RewriteAnswer, rewrite_request
from tasks.query.language_model.select_prompt import SelectAnswer, check_answer
from tests.bench.recorded_prompts import describe_prompts
from tests.bench.recorded_queries import sample_tasks
from tests.support.program.recorded import RecordedAnswers
from tests.support.samples.real_skills import (
    ARCHIVES,
    DATA,
    ROOT,
    Collections,
    needs_collections,
)
from tests.support.servers.language_model import LanguageModelServer
from workers.evaluation.predictions import read_jsonl

RECORDED = ROOT / "tests" / "data" / "recorded"
TASKS, TRIGGERS = DATA / "tasks-dev.jsonl", DATA / "triggers-dev.jsonl"
CANDIDATES = 50
SAMPLE = 110
RUN = 8
"""Words in a row that an answer and a frontmatter may not have in common."""

FRONT_MATTER_BYTES = 8_000
"""Of a file's beginning, where its frontmatter is."""


def read_answers(stage: str) -> RecordedAnswers:
    return RecordedAnswers.read(RECORDED / f"{stage}.jsonl")


@pytest.mark.parametrize("stage", ["judge", "links", "rewrite", "roles", "select"])
def test_the_prompts_are_those_that_were_answered(stage: str) -> None:
    recorded = json.loads((RECORDED / "prompts.json").read_text(encoding="utf-8"))
    now = {str(name): prompt for name, prompt in describe_prompts().items()}
    assert recorded.keys() == now.keys()
    then, today = recorded[stage], now[stage]
    if then["instructions"] != today["instructions"]:
        assert then["version"] != today["version"], f"{stage} changed: raise its version"
    assert then == today, (
        f"the prompt of {stage} changed: ask again, replace tests/data/recorded/{stage}.jsonl, "
        "then run `python -m tests.bench.recorded_prompts versions`"
    )


def test_every_answer_of_rewrite_has_its_form() -> None:
    answers = read_answers("rewrite").answers
    assert len(answers) >= SAMPLE
    for answer in answers.values():
        RewriteAnswer.model_validate(answer)


def test_every_answer_of_select_has_its_form() -> None:
    answers = read_answers("select").answers
    assert len(answers) >= 2 * SAMPLE
    for answer in answers.values():
        check_answer(SelectAnswer.model_validate(answer), CANDIDATES)


@needs_collections
def test_the_rewrites_of_tasks_and_triggers_are_recorded() -> None:
    fields = ("task_id", "instruction")
    tasks = [*read_jsonl(TASKS, fields), *sample_tasks(read_jsonl(TRIGGERS, fields), SAMPLE)]
    answers = read_answers("rewrite")
    with LanguageModelServer(answers) as server:
        settings = server.settings(stages=("rewrite",))
        requests = [rewrite_request(one["instruction"], settings.rewrite_queries) for one in tasks]
        with closing(OpenAILanguageModel(settings)) as model:
            for request in requests:
                assert model.complete(request, RewriteAnswer).calls == 1
    assert not answers.unknown
    assert answers.used == answers.answers.keys()


@needs_collections
def test_no_answer_holds_text_of_a_skill(real_skills: Collections) -> None:
    said: set[str] = set()
    for path in sorted(RECORDED.glob("*.jsonl")):
        for answer in RecordedAnswers.read(path).answers.values():
            for text in find_texts(answer):
                said.update(find_runs(text))
    assert len(said) > 100
    skills = 0
    for collection in ARCHIVES:
        for front_matter in read_front_matters(real_skills(collection)):
            skills += 1
            assert said.isdisjoint(find_runs(front_matter))
    assert skills > 12_000


def find_texts(answer: object) -> Iterator[str]:
    """Every text in an answer."""
    if isinstance(answer, str):
        yield answer
    elif isinstance(answer, dict):
        for part in answer.values():
            yield from find_texts(part)
    elif isinstance(answer, list):
        # The phrases of a list may be one sentence in pieces.
        yield " ".join(part for part in answer if isinstance(part, str))
        for part in answer:
            yield from find_texts(part)


def find_runs(text: str) -> Iterator[str]:
    """The runs of RUN words."""
    words: Sequence[str] = re.findall(r"\w+", text.casefold())
    for start in range(len(words) - RUN + 1):
        yield " ".join(words[start : start + RUN])


def read_front_matters(folder: Path) -> Iterator[str]:
    """The frontmatter of each skill in a folder: name, description and what else it says."""
    for path in folder.glob("*/**/SKILL.md"):
        with path.open("rb") as file:
            text = file.read(FRONT_MATTER_BYTES).decode(errors="replace")
        yield text.lstrip("\ufeff").removeprefix("---").partition("\n---")[0]
