"""Evaluations and labelled prompts that a caller may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.exceptions import HTTPException

from skills.skill_policy import get_source_id
from tasks.evaluations.model import EvaluatedPrompt, Evaluation
from tasks.services import Lazy
from workers.backend.store_backend import StoreBackend
from workers.evaluation.runs.compare_runs import PromptChange, compare_runs
from workers.evaluation.runs.curves import find_recall, find_reliability
from workers.evaluation.runs.labelled_prompts import LabelledPrompt, LabelledPrompts
from workers.http.authentication import Caller
from workers.http.cursors import cut_page
from workers.http.routes.quality.models import (
    EvaluationChanges,
    EvaluationData,
    EvaluationDetails,
    EvaluationList,
    LabelledPromptData,
    LabelledPromptList,
    MeasureChangeData,
    PromptChangeData,
    PromptData,
    QualityPage,
    RecallPoint,
    ReliabilityData,
    SettingChange,
)

MAX_CHANGES = 200


class QualityService:
    """Reads kept evaluations, and the labelled prompts of the library.

    Evaluations are of the whole library: readers who see only a part of it have none. Prompts that
    were labelled in answers are shown to the token that asked, and to admins.
    """

    def __init__(self, backend: StoreBackend) -> None:
        self._backend = backend
        self._labelled = Lazy(lambda: LabelledPrompts(backend.outcome_store()))

    def list_evaluations(self, caller: Caller) -> EvaluationList:
        """Return the kept runs, the newest first."""
        self._check_reader(caller)
        found = self._backend.evaluation_store().list_summaries()
        return EvaluationList(evaluations=[EvaluationData.model_validate(one) for one in found])

    def show_evaluation(
        self, caller: Caller, evaluation_id: str, query: QualityPage
    ) -> EvaluationDetails:
        """Return a run with its curves and a page of its prompts, worst first; raises
        NotFoundError for an unknown id."""
        run = self._get(caller, evaluation_id)
        visible = [one for one in run.prompts if _sees(caller, one.owner)]
        ordered = sorted(visible, key=_rank_worst)
        path = f"/v1/evaluations/{evaluation_id}"
        page, following = cut_page(path, ordered, query)
        reliability = find_reliability(run.prompts)
        return EvaluationDetails(
            **EvaluationData.model_validate(run.summary).model_dump(),
            reliability=None
            if reliability is None
            else ReliabilityData.model_validate(reliability),
            recall=[
                RecallPoint(rank=rank, recall=share) for rank, share in find_recall(run.prompts)
            ],
            prompts=[PromptData.model_validate(one) for one in page],
            prompt_count=len(visible),
            hidden=len(run.prompts) - len(visible),
            next=following,
        )

    def compare(self, caller: Caller, before_id: str, after_id: str) -> EvaluationChanges:
        """Return the differences between two runs; raises NotFoundError for an unknown id."""
        before, after = self._get(caller, before_id), self._get(caller, after_id)
        found = compare_runs(before, after)
        better = [one for one in found.better if _sees(caller, one.owner)]
        worse = [one for one in found.worse if _sees(caller, one.owner)]
        return EvaluationChanges(
            before=EvaluationData.model_validate(before.summary),
            after=EvaluationData.model_validate(after.summary),
            paired=found.paired,
            unpaired=found.unpaired,
            measures=[MeasureChangeData.model_validate(one) for one in found.measures],
            better=_describe_changes(better),
            worse=_describe_changes(worse),
            better_count=len(found.better),
            worse_count=len(found.worse),
            settings=[
                SettingChange(name=name, before=old, after=new) for name, old, new in found.settings
            ],
        )

    def remove(self, evaluation_id: str) -> None:
        """Delete a run; raises NotFoundError for an unknown id."""
        self._backend.evaluation_store().remove(evaluation_id)

    def list_labelled(self, caller: Caller, query: QualityPage) -> LabelledPromptList:
        """Return a page of the labelled prompts of a caller, of all for admins, newest first."""
        visible = self._backend.find_visible_sources(caller.reader)
        found = [one for one in self._labelled.get().read() if caller.can_see(one.owner)]
        page, following = cut_page("/v1/labelled-prompts", found, query)
        rows = [LabelledPromptData.model_validate(_restrict(one, visible)) for one in page]
        return LabelledPromptList(prompts=rows, total=len(found), next=following)

    def _get(self, caller: Caller, evaluation_id: str) -> Evaluation:
        self._check_reader(caller)
        return self._backend.evaluation_store().get(evaluation_id)

    def _check_reader(self, caller: Caller) -> None:
        """Raise HTTPException (403) for a reader who sees only a part of the library."""
        if self._backend.find_visible_sources(caller.reader) is not None:
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


def _describe_changes(changes: Sequence[PromptChange]) -> list[PromptChangeData]:
    return [PromptChangeData.model_validate(one) for one in changes[:MAX_CHANGES]]


def _restrict(prompt: LabelledPrompt, visible: frozenset[str] | None) -> LabelledPrompt:
    """Return a prompt without skills that its reader may not see."""
    if visible is None:
        return prompt

    def select(skill_ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(one for one in skill_ids if get_source_id(one) in visible)

    return replace(prompt, right=select(prompt.right), wrong=select(prompt.wrong))
