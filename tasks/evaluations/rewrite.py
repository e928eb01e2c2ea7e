"""Changes of the prompts of stored runs."""

from __future__ import annotations

from tasks.evaluations.model import EvaluatedPrompt
from tasks.evaluations.protocol import ChangePrompt


def change_all(
    prompts: tuple[EvaluatedPrompt, ...], change: ChangePrompt
) -> tuple[tuple[EvaluatedPrompt, ...], int]:
    """Return the changed prompts, and how many were changed or deleted."""
    kept = tuple(changed for one in prompts if (changed := change(one)) is not None)
    same = {id(one) for one in prompts}
    return kept, len(prompts) - sum(id(one) in same for one in kept)
