"""Roles of passages on recorded answers of a capable model, through HTTP, scored by line.

Twelve labelled skills are published, refined by the stage and read back as `eval roles` does. The
prompts are those that skillbus builds now, so a prompt that changed finds no answer.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from skills.events import SourceChanged
from tasks.policies import Deadline
from tasks.refine.roles.role_stage import RoleStage
from tasks.refine.stage import RefineContext
from tasks.services import Services
from tests.bench.recorded_prompts import choose_by_hash
from tests.support.program.recorded import RecordedAnswers
from tests.support.samples.real_skills import (
    ARCHIVES,
    DATA,
    ROOT,
    Collections,
    needs_collections,
    skill_file,
)
from tests.support.samples.tiny import settle, tiny_backend
from tests.support.servers.language_model import LanguageModelServer
from workers.evaluation.metrics import role_metrics
from workers.evaluation.predictions import predict_roles, read_published_revisions

LABELS = DATA / "roles-dev.json"
ANSWERS = ROOT / "tests" / "data" / "recorded" / "roles.jsonl"
SKILLS = 12

READ_WHILE_WRITING = 12
"""Labelled skills, by hash, whose errors were read before the prompt took its present form."""

MIN_ACCURACY, MIN_MACRO_F1 = 0.85, 0.77
"""What the recorded answers reach, less .01."""

Roles = Mapping[str, list[tuple[int, int, str]]]

pytestmark = needs_collections


@pytest.fixture(scope="module")
def gold() -> dict[str, Any]:
    """The labelled lines of the skills whose answers are recorded."""
    labels = json.loads(LABELS.read_text(encoding="utf-8"))
    chosen = choose_by_hash(list(labels), SKILLS, "gt", READ_WHILE_WRITING)
    return {skill_id: labels[skill_id] for skill_id in chosen}


@pytest.fixture(scope="module")
def services(
    gold: Mapping[str, Any], real_skills: Collections, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Services, list[dict[str, Any]]]]:
    """A library of these skills that the stage has refined, and its refinements."""
    base = tmp_path_factory.mktemp("roles")
    answers = RecordedAnswers.read(ANSWERS)
    with LanguageModelServer(answers) as server:
        # Not `roles`, or the worker would refine them too.
        settings = server.settings(stages=("select",)).model_dump()
        with tiny_backend(base / "home", language_model=settings) as backend:
            for skill_id in gold:
                file = skill_file(skill_id, real_skills)
                source_id, _, path = skill_id.partition(":")
                (base / source_id / path).mkdir(parents=True)
                shutil.copy(file, base / source_id / path)
            for source_id in ARCHIVES:
                event = SourceChanged(source_id=source_id, root=str(base / source_id))
                backend.submit(event, "tests")
            settle(backend, 120.0)
            refinements = refine(backend.services, gold)
            assert not answers.unknown
            assert answers.used == answers.answers.keys()
            yield backend.services, refinements


def refine(services: Services, skill_ids: Iterable[str]) -> list[dict[str, Any]]:
    """Run the stage for these skills and store what it found."""
    assert services.language_model is not None
    assert services.answers is not None
    model = services.language_model.get()
    context = RefineContext(services, model, services.answers, Deadline(600))
    stage, found = RoleStage(), []
    for revision in read_published_revisions(services, list(skill_ids)).values():
        refinement = stage.refine(context, revision)
        services.answers.save_refinements(context.kind(stage), {revision.content_hash: refinement})
        found.append(refinement)
    return found


def predict(services: Services, skill_ids: Iterable[str], *stages: str) -> Roles:
    """The roles that `eval roles` gives with these stages."""
    model = services.settings.language_model.model_copy(update={"stages": stages})
    settings = services.settings.model_copy(update={"language_model": model})
    return predict_roles(replace(services, settings=settings), list(skill_ids))


def count_confusions(gold: Roles, given: Roles) -> Counter[tuple[str, str]]:
    """Lines by labelled and given role, where they differ."""
    found: Counter[tuple[str, str]] = Counter()
    for skill_id, ranges in gold.items():
        guesses = {n: role for a, b, role in given[skill_id] for n in range(a, b + 1)}
        for first, last, role in ranges:
            if role not in ("frontmatter", "heading"):
                found.update((role, guesses.get(n, "none")) for n in range(first, last + 1))
    return Counter({pair: count for pair, count in found.items() if len(set(pair)) > 1})


def test_every_recorded_answer_is_valid(
    services: tuple[Services, list[dict[str, Any]]],
) -> None:
    refinements = services[1]
    assert len(refinements) == SKILLS
    assert not [reason for one in refinements for reason in one["invalid"]]
    assert all(one["passages"] for one in refinements)


def test_roles_of_the_model_are_right(
    gold: Roles, services: tuple[Services, list[dict[str, Any]]]
) -> None:
    local = role_metrics(gold, predict(services[0], gold, "select"))
    given = predict(services[0], gold, "roles")
    found = role_metrics(gold, given)
    print(f"local classifier {local}\nlanguage model {found}")
    for (truth, guess), lines in count_confusions(gold, given).most_common():
        print(f"{truth} taken for {guess}: {lines}")
    assert found["accuracy"] >= MIN_ACCURACY
    assert found["macro_f1"] >= MIN_MACRO_F1
