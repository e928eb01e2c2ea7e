"""Remaining refinement: its progress, and an estimate of the calls and tokens it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from config.errors import UsageError
from config.language_model_settings import NO_MODEL, LanguageModelSettings, ModelStage
from config.settings import Settings
from graph.protocol import Catalog
from graph.records import CatalogEntry
from skills.record import RevisionKey
from tasks.language_model.answer_store import AnswerStore, RefinementKind, utc_day
from tasks.language_model.metered import count_prompt_tokens
from tasks.policies import REFINE, Deadline
from tasks.refine.refined_subjects import RefinedSubjects
from tasks.refine.stage import RefineContext, RefineStage
from tasks.refine.stages import list_enabled_stages
from tasks.refine.unrefined import find_unrefined, list_published
from workers.backend.model_stores import open_answers
from workers.backend.stores import open_services, send_nothing

_BATCH = 64


class StageEstimate(NamedTuple):
    """Estimate of one stage. prompt_tokens: counted here. answer_tokens: maximum of the answers.
    Retries of invalid answers are not included."""

    stage: ModelStage
    skills: int
    calls: int
    prompt_tokens: int
    answer_tokens: int


class RefinementEstimate(NamedTuple):
    """Estimate of refinement, by stage. tokens_left: of today; None without a limit."""

    model: str
    stages: tuple[StageEstimate, ...]
    tokens_left: int | None


def estimate_refinement(
    settings: Settings, source_id: str | None, step: Callable[[int, int], None]
) -> RefinementEstimate:
    """Estimate the requests of the stages about published skills without refinements; sends none.

    source_id: limits it to this source. step: called with (done, total) skills.
    """
    with ExitStack() as stack:
        services = open_services(settings, stack, send_nothing, writable=False)
        answers = services.answers
        if services.language_model is None or answers is None:
            raise UsageError(NO_MODEL)
        stages = list_enabled_stages(settings.language_model)
        entries = list_published(services.graph, source_id)
        model = settings.language_model.model
        missing = find_unrefined(answers, services.refined, model, stages, entries)
        deadline = Deadline(REFINE.time_limit)
        context = RefineContext(services, services.language_model.get(), answers, deadline)
        total = sum(map(len, missing.values()))
        found: list[StageEstimate] = []
        for stage in stages:
            step(sum(one.skills for one in found), total)
            found.append(_estimate_stage(context, stage, missing[stage.name]))
        return RefinementEstimate(model, tuple(found), _get_tokens_left(settings, answers))


def _estimate_stage(
    context: RefineContext, stage: RefineStage, entries: Sequence[CatalogEntry]
) -> StageEstimate:
    calls = prompt_tokens = answer_tokens = 0
    for start in range(0, len(entries), _BATCH):
        keys = [RevisionKey(one.skill_id, one.seq) for one in entries[start : start + _BATCH]]
        for revision in context.services.index.get_revisions(keys).values():
            for request in stage.requests(context, revision):
                calls += 1
                prompt_tokens += count_prompt_tokens(request)
                answer_tokens += request.max_tokens
    return StageEstimate(stage.name, len(entries), calls, prompt_tokens, answer_tokens)


def _get_tokens_left(settings: Settings, answers: AnswerStore) -> int | None:
    limit = settings.language_model.daily_tokens
    if not limit:
        return None
    return max(0, limit - _count_used_today(answers))


def _count_used_today(answers: AnswerStore) -> int:
    return sum(stage.tokens for stage in answers.get_usage(utc_day(time.time())).values())


class InvalidRefinement(NamedTuple):
    """A published skill for which the model gave an invalid answer."""

    entry: CatalogEntry
    stage: str
    reason: str


class RefinementProgress:
    """Progress of the refinement of a library, or of one source.

    refined: cache of the refinements that are known.
    """

    def __init__(
        self,
        settings: LanguageModelSettings,
        graph: Catalog,
        answers: AnswerStore,
        *,
        source_id: str | None = None,
        refined: RefinedSubjects | None = None,
    ) -> None:
        self._model, self._stages = settings.model, list_enabled_stages(settings)
        self._graph, self._answers, self._source_id = graph, answers, source_id
        self._refined = refined or RefinedSubjects()
        self._entries: list[CatalogEntry] = []
        self._missing: dict[str, list[CatalogEntry]] = {}

    @property
    def total(self) -> int:
        """Number of skills at the last `find_missing`."""
        return len(self._entries)

    def find_missing(self) -> list[CatalogEntry]:
        """Return the published skills that a stage has not refined, by id."""
        self._entries = list_published(self._graph, self._source_id)
        self._missing = find_unrefined(
            self._answers, self._refined, self._model, self._stages, self._entries
        )
        ids = {entry.skill_id for missing in self._missing.values() for entry in missing}
        return [entry for entry in self._entries if entry.skill_id in ids]

    def get_sign_of_life(self) -> tuple[int, ...]:
        """Return numbers that change while work goes on: missing skills by stage, and today's
        tokens. Failed calls use no tokens."""
        return (*map(len, self._missing.values()), _count_used_today(self._answers))

    def count_by_stage(self) -> dict[str, dict[str, int]]:
        """Return numbers of skills by stage, as of the last `find_missing`: refined, waiting, and
        with an invalid answer."""
        invalid = [one.stage for one in self.list_invalid()]
        return {
            stage: {
                "refined": self.total - len(missing),
                "waiting": len(missing),
                "invalid": invalid.count(stage),
            }
            for stage, missing in self._missing.items()
        }

    def list_invalid(self) -> list[InvalidRefinement]:
        """Return the invalid answers, as of the last `find_missing`."""
        found = []
        hashes = {entry.content_hash for entry in self._entries}
        for stage in self._stages:
            kind = RefinementKind(stage.name, self._model, stage.version)
            reasons = self._refined.get_invalid(kind, hashes)
            found += [
                InvalidRefinement(entry, stage.name, reason)
                for entry in self._entries
                for reason in reasons.get(entry.content_hash, ())
            ]
        return found


def open_progress(
    settings: Settings, graph: Catalog, source_id: str | None, stack: ExitStack
) -> RefinementProgress:
    """Open the answers, closed with the stack. Raises UsageError if no model is configured."""
    answers = open_answers(settings, stack)
    if answers is None:
        raise UsageError(NO_MODEL)
    return RefinementProgress(settings.language_model, graph, answers, source_id=source_id)
