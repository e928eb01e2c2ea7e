"""The protocol of the store of evaluations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tasks.evaluations.model import PURGED, EvaluatedPrompt, Evaluation, EvaluationSummary

MAX_EVALUATIONS = 100
"""Runs that are kept: the newest."""

ChangePrompt = Callable[[EvaluatedPrompt], EvaluatedPrompt | None]
"""Returns a prompt as it is to be kept from now on, None to delete it."""


class EvaluationStore(Protocol):
    """The newest runs of `skillbus eval`; shared by threads and processes.

    Every implementation passes `tests/contract/test_evaluation_store.py`. Methods raise
    TransientError when the store is busy, full or unreachable.
    """

    def add(self, evaluation: Evaluation) -> None:
        """Keep a run durably; beyond MAX_EVALUATIONS the oldest are deleted."""
        ...

    def list_summaries(self) -> list[EvaluationSummary]:
        """The kept runs, newest first."""
        ...

    def get(self, evaluation_id: str) -> Evaluation:
        """One run; raises NotFoundError for an unknown id."""
        ...

    def remove(self, evaluation_id: str) -> None:
        """Delete a run; raises NotFoundError for an unknown id."""
        ...

    def change_prompts(self, change: ChangePrompt) -> int:
        """Change or delete prompts of all runs, whose measures stay; returns how many changed."""
        ...

    def overwrite_deleted(self) -> None:
        """Leave nothing readable of what was deleted, as far as a client can."""
        ...

    def close(self) -> None:
        """Release the file or the connections."""
        ...


def describe_unknown_evaluation(evaluation_id: str) -> str:
    """Return the message for an unknown id."""
    return (
        f"no evaluation {evaluation_id!r}; the newest {MAX_EVALUATIONS} are kept, and "
        "`skillbus eval list` names them"
    )


def forget_skill(store: EvaluationStore, skill_id: str) -> int:
    """Take the id of a skill out of all runs; returns of how many prompts."""

    def change(prompt: EvaluatedPrompt) -> EvaluatedPrompt:
        if skill_id not in prompt.needed and skill_id not in prompt.found:
            return prompt
        return replace(
            prompt,
            needed=tuple(PURGED if one == skill_id else one for one in prompt.needed),
            found=tuple(PURGED if one == skill_id else one for one in prompt.found),
        )

    return store.change_prompts(change)


def forget_prompts(store: EvaluationStore, is_forgotten: Callable[[EvaluatedPrompt], bool]) -> int:
    """Delete prompts that were labelled in answers and are to be forgotten; returns how many."""
    return store.change_prompts(
        lambda one: None if one.owner is not None and is_forgotten(one) else one
    )
