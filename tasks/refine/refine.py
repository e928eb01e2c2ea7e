"""Refinement of published skills with a language model, after publication, on a queue of its own.

Every answer is stored before the next request, so a task that is interrupted, repeated or runs
twice pays for nothing again. Problems that concern all skills (the endpoint, its settings, the
day's tokens) pause refinement, and the reconciler sends the work again after the pause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextvars import copy_context

import structlog
from typing_extensions import override

from config.errors import PermanentError, TransientError
from graph.records import SkillState
from search.protocol import StoredRevision
from tasks.ingest.embed_sections import lower_thread_priority
from tasks.ingest.next_tasks import defer_refine, drop_paused, pause_failed, send_refine
from tasks.language_model.protocol import InvalidAnswerError, ModelUnavailableError
from tasks.policies import REFINE, Deadline, DeadlineExceededError
from tasks.refine.pauses import PAUSING_ERRORS, get_refine_pause, pause_refining
from tasks.refine.stage import RefineContext, RefineStage
from tasks.services import Services

log = structlog.get_logger()


class _StoppableDeadline(Deadline):
    """A deadline that is also over once `is_stopped` returns True."""

    def __init__(self, deadline: Deadline, is_stopped: Callable[[], bool]) -> None:
        super().__init__(deadline.remaining())
        self._is_stopped = is_stopped

    @override
    def remaining(self) -> float:
        return 0.0 if self._is_stopped() else super().remaining()


def refine(services: Services, deadline: Deadline, skill_ids: Sequence[str]) -> dict[str, object]:
    """Refine the published revisions of these skills by all stages that are on; idempotent.

    The skills of a batch are worked on by `language_model.concurrency` threads. Skills that are not
    done within the time limit are sent again. Raises the error of a skill once all other skills are
    done.
    """
    try:
        is_done = _refine_batch(services, deadline, skill_ids)
    finally:
        services.coordinator.add_pending(REFINE.name, -1)
    unfinished = [skill_id for skill_id, done in is_done.items() if not done]
    settings = services.settings.language_model
    pause = get_refine_pause(services.coordinator, settings) if unfinished else None
    if unfinished and pause is None and not services.stopping.is_set():
        send_refine(services.coordinator, services.send_task, unfinished)
    report: dict[str, object] = {
        "refined": len(is_done) - len(unfinished),
        "waiting": len(unfinished),
    }
    return report | ({"paused": pause.reason} if pause else {})


def _refine_batch(
    services: Services, deadline: Deadline, skill_ids: Sequence[str]
) -> dict[str, bool]:
    """Return whether each published skill that is not paused is done; raises the first error that
    concerns a single skill."""
    settings = services.settings.language_model
    if services.language_model is None or services.answers is None or not settings.offline_stages:
        return {}
    published = [
        entry.key
        for entry in services.graph.get_entries(skill_ids)
        if entry.state is SkillState.PUBLISHED
    ]
    keys = drop_paused(services.coordinator, REFINE, published)
    if not published or get_refine_pause(services.coordinator, settings):
        return {key.skill_id: False for key in keys}
    try:
        model = services.language_model.get()
    except PAUSING_ERRORS as error:
        pause_refining(services.coordinator, settings, error)
        return {key.skill_id: False for key in keys}
    found = services.index.get_revisions(keys).values()
    revisions = sorted(found, key=lambda revision: skill_ids.index(revision.key.skill_id))
    held_up = threading.Event()
    until = _StoppableDeadline(deadline, lambda: held_up.is_set() or services.stopping.is_set())
    batch = _Batch(RefineContext(services, model, services.answers, until), held_up)
    is_done = batch.run(revisions, settings.concurrency)
    batch.confirm_rejected_pairs()
    return is_done


class _Batch:
    """The skills of one task. held_up: set once a problem stops all of them."""

    def __init__(self, context: RefineContext, held_up: threading.Event) -> None:
        from tasks.refine.stages import list_enabled_stages  # only if a model is configured

        self._context = context
        self._held_up = held_up
        self._stages = list_enabled_stages(context.services.settings.language_model)

    def run(self, revisions: Sequence[StoredRevision], threads: int) -> dict[str, bool]:
        """Refine the skills, several at a time; return whether each is done."""
        if not revisions:
            return {}
        is_done: dict[str, bool] = {}
        errors: list[Exception] = []
        with ThreadPoolExecutor(
            min(threads, len(revisions)), "skillbus-refine", lower_thread_priority
        ) as pool:
            futures: dict[Future[bool], StoredRevision] = {
                pool.submit(copy_context().run, self._refine_skill, revision): revision
                for revision in revisions
            }
            for future in as_completed(futures):
                skill_id = futures[future].key.skill_id
                error = future.exception()
                if error is None:
                    is_done[skill_id] = future.result()
                elif isinstance(error, Exception):
                    log.warning("skill not refined", skill=skill_id, reason=str(error))
                    errors.append(error)
                else:
                    raise error
        # An error of a store comes first: the whole task is then retried.
        errors.sort(key=lambda error: not isinstance(error, TransientError))
        if errors:
            raise errors[0]
        return is_done

    def confirm_rejected_pairs(self) -> None:
        """Ask about pairs that queries compared, if links are made from verdicts."""
        services = self._context.services
        settings = services.settings.language_model
        if not settings.uses("links") or self._held_up.is_set():
            return
        from tasks.refine.linking.rejected import confirm_rejected_pairs

        try:
            confirm_rejected_pairs(self._context)
        except DeadlineExceededError:
            log.info("pairs that queries compared wait for the next batch")
        except PAUSING_ERRORS as error:
            if not services.stopping.is_set():
                pause_refining(services.coordinator, settings, error)

    def _refine_skill(self, revision: StoredRevision) -> bool:
        services = self._context.services
        try:
            for stage in self._stages:
                self._context.deadline.check(stage.name)
                services.coordinator.yield_to_queries()
                self._run_stage(stage, revision)
        except DeadlineExceededError:
            return False
        except PAUSING_ERRORS as error:
            self._held_up.set()
            if not services.stopping.is_set():  # stopping ends calls too
                pause_refining(services.coordinator, services.settings.language_model, error)
                if isinstance(error, ModelUnavailableError) and error.calls:
                    defer_refine(services.coordinator, revision.key.skill_id, str(error))
            return False
        return True

    def _run_stage(self, stage: RefineStage, revision: StoredRevision) -> None:
        """Apply the stored refinement, or create, apply and store it.

        It is stored last: after a crash the next run applies it again, from answers that are stored
        already.
        """
        context, subject = self._context, revision.content_hash
        kind = context.kind(stage)
        stored = context.answers.get_refinements(kind, [subject]).get(subject)
        if stored is not None:
            stage.apply(context, revision, stored)
            return
        try:
            refinement = stage.refine(context, revision)
        except InvalidAnswerError as error:
            refinement = {"invalid": [str(error)]}
        stage.apply(context, revision, refinement)
        context.answers.save_refinements(kind, {subject: refinement})


def split_refine_batch(services: Services, skill_ids: Sequence[str], error: BaseException) -> None:
    """Handle the failure of a batch: send each of its skills alone.

    The revision of a skill that fails alone is not tried again for a day, unless the error may be
    temporary.
    """
    if isinstance(error, TransientError):
        return
    if len(skill_ids) > 1:
        for skill_id in skill_ids:
            send_refine(services.coordinator, services.send_task, [skill_id])
        return
    reason = str(error) if isinstance(error, PermanentError) else f"{type(error).__name__}: {error}"
    for skill_id in skill_ids:
        pause_failed(services, REFINE, skill_id, reason)
