"""The order of ingest: its table, checked against what the tasks' modules send."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

from skills.events import EventData, GitFetchOptions, GitPush, SkillRemoved, SourceChanged
from tasks.ingest import (
    diff,
    embed_sections,
    embed_skills,
    event_outcome,
    fetch,
    ingest,
    link,
    maintain,
    plan,
)
from tasks.ingest import poll as poll_module
from tasks.ingest.next_tasks import first_task
from tasks.ingest.pipeline import INGEST_PIPELINE
from tasks.policies import (
    EMBED_SECTIONS,
    EMBED_SKILLS,
    FETCH,
    INGEST,
    LINK,
    MAINTAIN,
    PLAN,
    POLICIES,
    QUERY,
    RECORD_OUTCOMES,
    REFINE,
    ROLL_UP,
    TaskPolicy,
)
from tasks.refine import refine as refine_module
from tasks.refine import unrefined
from tasks.task import TaskDefinition

MODULES: dict[str, tuple[ModuleType, ...]] = {
    PLAN.name: (plan, diff, event_outcome),
    FETCH.name: (fetch, diff, event_outcome),
    INGEST.name: (ingest,),
    EMBED_SKILLS.name: (embed_skills,),
    EMBED_SECTIONS.name: (embed_sections,),
    LINK.name: (link,),
    REFINE.name: (refine_module,),
    MAINTAIN.name: (maintain, poll_module, unrefined),
}
SENDERS: dict[str, TaskPolicy] = {
    "send_plan": PLAN,
    "send_fetch": FETCH,
    "send_ingest": INGEST,
    "send_refine": REFINE,
    "send_link": LINK,
}
COMPOUND: dict[str, tuple[TaskPolicy, ...]] = {
    "send_after_ingest": (LINK, EMBED_SKILLS, EMBED_SECTIONS),
    "send_unembedded": (EMBED_SKILLS, EMBED_SECTIONS),
}


def called(module: ModuleType) -> set[str]:
    """Names of the functions that a module calls."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls}


@pytest.mark.parametrize("definition", INGEST_PIPELINE, ids=lambda one: one.policy.name)
def test_a_task_sends_what_the_table_says(definition: TaskDefinition) -> None:
    names = set().union(*(called(module) for module in MODULES[definition.policy.name]))
    sent = {SENDERS[name].name for name in names & SENDERS.keys()}
    sent |= {policy.name for name in names & COMPOUND.keys() for policy in COMPOUND[name]}
    # Only the reconciler sends tasks otherwise: queries, and those of dead workers.
    if definition.policy is MAINTAIN:
        sent.add(QUERY.name)
    else:
        assert "send_task" not in names
    assert sent == {policy.name for policy in definition.sends}


def test_the_table_holds_all_tasks_of_ingest() -> None:
    names = [definition.policy.name for definition in INGEST_PIPELINE]
    others = (QUERY.name, RECORD_OUTCOMES.name, ROLL_UP.name)
    assert names == [name for name in POLICIES if name not in others]


AFTER = "a" * 40


@pytest.mark.parametrize(
    ("data", "task"),
    [
        (SourceChanged(source_id="team"), PLAN),
        (SourceChanged(source_id="team", root="/srv/team"), PLAN),
        (SkillRemoved(skill_id="team:a"), PLAN),
        (SourceChanged(source_id="team", root="https://x/y", git=GitFetchOptions()), FETCH),
        (SourceChanged(source_id="team", pushed=GitPush(before=AFTER, after=AFTER)), FETCH),
    ],
)
def test_an_event_that_names_a_git_source_goes_straight_to_fetch(
    data: EventData, task: TaskPolicy
) -> None:
    assert first_task(data) is task
