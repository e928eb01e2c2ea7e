"""Tasks: each has a definition, and an event goes to the right one first."""

from __future__ import annotations

import pytest

from skills.events import EventData, GitFetchOptions, GitPush, SkillRemoved, SourceChanged
from tasks.ingest.next_tasks import first_task
from tasks.policies import FETCH, PLAN, POLICIES, TaskPolicy
from tasks.run_task import TASK_DEFINITIONS


def test_every_task_is_defined() -> None:
    assert TASK_DEFINITIONS.keys() == POLICIES.keys()


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
