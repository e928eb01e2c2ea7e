"""Protocol of the store of evaluations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tasks.evaluations.model import (
    PURGED,
    EvaluatedPrompt,
    Evaluation,
    EvaluationSummary,
    dump_prompts,
    load_prompts,
)

MAX_EVALUATIONS = 100
"""Maximum runs that are stored: the newest."""

ChangePrompt = Callable[[EvaluatedPrompt], EvaluatedPrompt | None]
"""Function that returns the changed prompt, None to delete it."""


class EvaluationStore(Protocol):
    """The newest runs of `skillbus eval`; shared by threads and processes.

    Every implementation passes `tests/contract/test_evaluation_store.py`. Methods raise
    TransientError when the store is busy, full or unreachable.
    """

    def add(self, evaluation: Evaluation) -> None:
        """Keep a run durably; beyond MAX_EVALUATIONS the oldest are deleted."""
        ...

    def list_summaries(self) -> list[EvaluationSummary]:
        """Return the kept runs, newest first."""
        ...

    def get(self, evaluation_id: str) -> Evaluation:
        """Return one run; raises NotFoundError for an unknown id."""
        ...

    def remove(self, evaluation_id: str) -> None:
        """Delete a run; raises NotFoundError for an unknown id."""
        ...

    def change_prompts(self, change: ChangePrompt, naming: str = "") -> int:
        """Change or delete prompts of all runs, but not their measures; returns the number of
        changes.

        naming: a text that every prompt to change has; runs without it are not changed.
        """
        ...

    def overwrite_deleted(self) -> None:
        """Make deleted content unreadable, within the means of a client."""
        ...

    def close(self) -> None:
        """Release the file or the connections."""
        ...


def change_run(data: bytes, change: ChangePrompt, naming: str) -> tuple[bytes, int]:
    """Return the stored prompts of a run after a change, and how many were changed or deleted.

    change, naming: as in `EvaluationStore.change_prompts`.
    """
    prompts = load_prompts(data, naming)
    kept = tuple(changed for one in prompts if (changed := change(one)) is not None)
    same = {id(one) for one in prompts}
    count = len(prompts) - sum(id(one) in same for one in kept)
    return (dump_prompts(kept) if count else data), count


def describe_unknown_evaluation(evaluation_id: str) -> str:
    """Return the message for an unknown id."""
    return (
        f"no evaluation {evaluation_id!r}; the newest {MAX_EVALUATIONS} are kept, and "
        "`skillbus eval list` lists them"
    )


def forget_skill(store: EvaluationStore, skill_id: str) -> int:
    """Replace the id of a skill in all runs by PURGED; returns the number of changed prompts."""

    def change(prompt: EvaluatedPrompt) -> EvaluatedPrompt:
        if skill_id not in prompt.needed and skill_id not in prompt.found:
            return prompt
        return replace(
            prompt,
            needed=tuple(PURGED if one == skill_id else one for one in prompt.needed),
            found=tuple(PURGED if one == skill_id else one for one in prompt.found),
        )

    return store.change_prompts(change, skill_id)


def forget_prompts(
    store: EvaluationStore, is_forgotten: Callable[[EvaluatedPrompt], bool], naming: str = ""
) -> int:
    """Delete the prompts labelled in answers for which `is_forgotten` is true; returns their
    number. naming: as in `EvaluationStore.change_prompts`."""
    return store.change_prompts(
        lambda one: None if one.owner is not None and is_forgotten(one) else one, naming
    )


def forget_labelled(store: EvaluationStore, query_id: str) -> int:
    """Delete the prompts labelled in the answer to a query; returns their number."""
    return forget_prompts(store, lambda one: one.prompt_id == query_id, query_id)
