"""Evaluations and labelled prompts that a caller may see.

Prompts that were labelled in answers are shown to the token that asked, and to admins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.exceptions import HTTPException

from skills.record import get_source_id
from tasks.evaluations.model import EvaluatedPrompt, Evaluation
from tasks.services import Lazy
from workers.backend.store_backend import StoreBackend
from workers.evaluation.runs.compare_runs import compare_runs
from workers.evaluation.runs.curves import find_recall, find_reliability
from workers.evaluation.runs.labelled_prompts import LabelledPrompt, LabelledPrompts
from workers.http.authentication import NEEDS_ADMIN, Caller, CurrentCaller
from workers.http.cursors import cut_page
from workers.http.dependencies import CurrentBackend, from_state
from workers.http.routes.quality.models import (
    EvaluationChanges,
    EvaluationData,
    EvaluationDetails,
    EvaluationList,
    LabelledPromptList,
    QualityPage,
    RecallPoint,
    SettingChange,
)

MAX_CHANGES = 200


CurrentLabelled = Annotated[Lazy[LabelledPrompts], from_state("labelled")]

EvaluationId = Annotated[
    str, Path(description="of `GET /v1/evaluations`", min_length=1, max_length=100)
]
Page = Annotated[QualityPage, Query()]

router = APIRouter(tags=["quality"])


@router.get("/v1/evaluations")
def list_evaluations(backend: CurrentBackend, caller: CurrentCaller) -> EvaluationList:
    """List kept runs of `skillbus eval`, the newest first; for readers of all sources."""
    _check_reader(backend, caller)
    return EvaluationList.model_validate(
        {"evaluations": backend.evaluation_store().list_summaries()}
    )


@router.get("/v1/evaluations/{evaluation_id}")
def show_evaluation(
    backend: CurrentBackend, caller: CurrentCaller, evaluation_id: EvaluationId, query: Page
) -> EvaluationDetails:
    """Show a run: its measures and curves, and its prompts with the
    skills found, worst first."""
    run = _get_run(backend, caller, evaluation_id)
    visible = [one for one in run.prompts if _sees(caller, one.owner)]
    ordered = sorted(visible, key=_rank_worst)
    page, following = cut_page(f"/v1/evaluations/{evaluation_id}", ordered, query)
    summary = EvaluationData.model_validate(run.summary).model_dump()
    return EvaluationDetails.model_validate(
        summary
        | {
            "reliability": find_reliability(run.prompts),
            "recall": [
                RecallPoint(rank=rank, recall=share) for rank, share in find_recall(run.prompts)
            ],
            "prompts": page,
            "prompt_count": len(visible),
            "hidden": len(run.prompts) - len(visible),
            "next": following,
        }
    )


@router.get("/v1/evaluations/{evaluation_id}/changes")
def compare_evaluations(
    backend: CurrentBackend,
    caller: CurrentCaller,
    evaluation_id: EvaluationId,
    before: Annotated[str, Query(description="the run to compare with", max_length=100)],
) -> EvaluationChanges:
    """Compare a run with another: measures, and the prompts that got better and worse."""
    earlier, later = (_get_run(backend, caller, one) for one in (before, evaluation_id))
    found = compare_runs(earlier, later)
    better, worse = (
        [one for one in prompts if _sees(caller, one.owner)][:MAX_CHANGES]
        for prompts in (found.better, found.worse)
    )
    return EvaluationChanges.model_validate(
        {
            "before": earlier.summary,
            "after": later.summary,
            "paired": found.paired,
            "unpaired": found.unpaired,
            "measures": found.measures,
            "better": better,
            "worse": worse,
            "better_count": len(found.better),
            "worse_count": len(found.worse),
            "settings": [
                SettingChange(name=name, before=old, after=new) for name, old, new in found.settings
            ],
        }
    )


@router.delete("/v1/evaluations/{evaluation_id}", status_code=204, dependencies=NEEDS_ADMIN)
def remove_evaluation(backend: CurrentBackend, evaluation_id: EvaluationId) -> None:
    """Delete a kept run."""
    backend.evaluation_store().remove(evaluation_id)


@router.get("/v1/labelled-prompts")
def list_labelled_prompts(
    backend: CurrentBackend, labelled: CurrentLabelled, caller: CurrentCaller, query: Page
) -> LabelledPromptList:
    """List the tasks for which a person reported the right skills: your own, as an admin
    all; the newest first."""
    visible = backend.find_visible_sources(caller.reader)
    found = [one for one in labelled.get().read() if caller.can_see(one.owner)]
    page, following = cut_page("/v1/labelled-prompts", found, query)
    rows = [_restrict(one, visible) for one in page]
    return LabelledPromptList.model_validate(
        {"prompts": rows, "total": len(found), "next": following}
    )


def _get_run(backend: StoreBackend, caller: Caller, evaluation_id: str) -> Evaluation:
    """Return a kept run; raises NotFoundError for an unknown id."""
    _check_reader(backend, caller)
    return backend.evaluation_store().get(evaluation_id)


def _check_reader(backend: StoreBackend, caller: Caller) -> None:
    """Raise HTTPException (403) for a reader who sees only a part of the library: evaluations are
    of all of it."""
    if backend.find_visible_sources(caller.reader) is not None:
        raise HTTPException(
            403, "evaluations are of the whole library, and your token sees a part of it"
        )


def _sees(caller: Caller, owner: str | None) -> bool:
    """Return whether a caller may see a prompt; every reader of the library
    sees prompts of files."""
    return owner is None or caller.can_see(owner)


def _rank_worst(prompt: EvaluatedPrompt) -> tuple[float, str]:
    """Return the sort key of a prompt: first prompts without any needed skill found, then those
    whose best needed skill ranks last."""
    best = min((rank for rank in prompt.ranks if rank), default=0)
    last = float("inf") if prompt.needed and not best else float(best)
    return -last, prompt.prompt_id


def _restrict(prompt: LabelledPrompt, visible: frozenset[str] | None) -> LabelledPrompt:
    """Return a prompt without skills that its reader may not see."""
    if visible is None:
        return prompt

    def select(skill_ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(one for one in skill_ids if get_source_id(one) in visible)

    return replace(prompt, right=select(prompt.right), wrong=select(prompt.wrong))
