"""Evaluates the ranking on the library's own labelled prompts."""

from __future__ import annotations

from tasks.evaluations.model import EvaluatedPrompt
from tasks.services import Services
from workers.evaluation.predictions import rank_task
from workers.evaluation.runs.labelled_prompts import LabelledPrompts, merge_by_task
from workers.evaluation.runs.make_run import evaluate_prompt


def evaluate_labels(services: Services, without: tuple[str, ...] = ()) -> list[EvaluatedPrompt]:
    """Rank the library for each labelled prompt, with the memory of all other tasks.

    Outcomes of the same task are left out meanwhile, as the memory would return what it was taught.
    Links learned from use stay. Prompts whose labels are forgotten meanwhile are dropped. Raises
    TransientError if a store does not answer.
    """
    labelled = LabelledPrompts(services.outcomes)
    found = []
    for one in merge_by_task(labelled.read()):
        services.past_tasks.leave_out(labelled.list_same_task(one.task))
        ranked = rank_task(services, one.query_id, one.task, without)
        found.append(evaluate_prompt(ranked, one.task, one.right, one.owner, one.answered))
    services.past_tasks.leave_out(())
    still = {one.query_id for one in labelled.read()}
    return [one for one in found if one.prompt_id in still]
