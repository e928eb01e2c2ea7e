"""Functions that choose and send the tasks of ingest, and count those that other tasks wait for.

`pipeline` shows which task sends which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from config.errors import TransientError
from graph.records import Source
from skills.batches import batches
from skills.events import EventData, OutcomesReported, SourceChanged
from skills.record import RevisionKey
from tasks.coordination.protocol import Coordinator
from tasks.policies import (
    EMBED_SECTIONS,
    EMBED_SKILLS,
    FETCH,
    INGEST,
    LINK,
    PLAN,
    RECORD_OUTCOMES,
    REFINE,
    DeadlineExceededError,
    TaskPolicy,
)
from tasks.services import SendTask, Services
from tasks.sources.readers import find_source

_EMBED_BATCH_SKILLS = {EMBED_SKILLS.name: 64, EMBED_SECTIONS.name: 16}
_MAX_WAITING = 20_000
_REFINE_BATCH_SKILLS = 16
_FAILED_SECONDS = 86_400.0
_DEFERRED_SECONDS = 3_600.0


def first_task(data: EventData) -> TaskPolicy:
    """Return the task for an accepted event: RECORD_OUTCOMES for outcomes, FETCH if the event says
    that its source is a git repository, else PLAN, which looks the source up and may forward to
    FETCH."""
    if isinstance(data, OutcomesReported):
        return RECORD_OUTCOMES
    is_git = isinstance(data, SourceChanged) and (data.git is not None or data.pushed is not None)
    return FETCH if is_git else PLAN


def needs_fetch(data: EventData, list_sources: Callable[[], Iterable[Source]]) -> bool:
    """Return whether an event is about a git source, whose content must be fetched first."""
    if not isinstance(data, SourceChanged):
        return False
    if data.git is not None:
        return True
    source = find_source(list_sources(), data.source_id)
    return source is not None and source.kind == "git"


def send_plan(services: Services, event_ids: Sequence[str]) -> None:
    """Send accepted events to `plan`."""
    services.send_task(PLAN.name, event_ids)


def send_fetch(services: Services, event_ids: Sequence[str]) -> None:
    """Send accepted events of git sources to `fetch`."""
    services.send_task(FETCH.name, event_ids)


def send_ingest(services: Services, skill_ids: Sequence[str]) -> None:
    """Send one batch of skills to `ingest`; the catalog must hold their requests."""
    services.coordinator.add_pending(INGEST.name, 1)
    services.send_task(INGEST.name, skill_ids)


def send_link(services: Services) -> None:
    """Send the task that links all marked skills."""
    services.send_task(LINK.name, [])


def send_after_ingest(services: Services, published: Sequence[RevisionKey], others: int) -> None:
    """Send the tasks after ingest: linking, and embedding once all skills of a large change are
    published.

    published: revisions without skill vectors. others: ingest tasks that still run or wait. While
    skills are being embedded, newly published skills are sent at once.
    """
    if not others:
        send_link(services)
    if services.coordinator.count_pending(EMBED_SKILLS.name):
        _send_to_embed(services, EMBED_SKILLS, [key.skill_id for key in published])
    elif not others:
        send_unembedded(services)


def _send_to_embed(services: Services, task: TaskPolicy, skill_ids: Sequence[str]) -> None:
    """Send skills to EMBED_SKILLS or EMBED_SECTIONS, in batches and in this order."""
    for batch in batches(skill_ids, _EMBED_BATCH_SKILLS[task.name]):
        services.coordinator.add_pending(task.name, 1)
        services.send_task(task.name, batch)


def send_unembedded(services: Services) -> dict[str, int]:
    """Send published skills without skill vectors to be embedded, most used first; once few are
    left, the skills without section vectors too. Returns how many were sent, by task.

    Nothing is sent twice: tasks that run or wait send the remaining skills when they are done.
    Skills whose embedding is paused are left out.
    """
    graph, coordinator = services.graph, services.coordinator
    sent = {"embed_skills": 0, "embed_sections": 0}
    if coordinator.count_pending(EMBED_SKILLS.name):
        return sent
    skills = drop_paused(coordinator, EMBED_SKILLS, graph.list_awaiting_vectors(_MAX_WAITING))
    _send_to_embed(services, EMBED_SKILLS, [key.skill_id for key in skills])
    sent["embed_skills"] = len(skills)
    is_nearly_done = len(skills) <= _EMBED_BATCH_SKILLS[EMBED_SKILLS.name]
    if is_nearly_done and not coordinator.count_pending(EMBED_SECTIONS.name):
        waiting = graph.list_awaiting_embedding(_MAX_WAITING)
        skills = drop_paused(coordinator, EMBED_SECTIONS, waiting)
        _send_to_embed(services, EMBED_SECTIONS, [key.skill_id for key in skills])
        sent["embed_sections"] = len(skills)
    return sent


def split_embed_batch(
    services: Services, skill_ids: Sequence[str], error: BaseException, *, task: TaskPolicy
) -> None:
    """Handle the failure of a batch: send each of its skills alone.

    A skill that fails alone stays without vectors, and is not tried again for a day unless it
    missed the deadline; the error is shown in `status`. After other transient errors the reconciler
    sends the batch again. task: EMBED_SKILLS or EMBED_SECTIONS.
    """
    if isinstance(error, TransientError) and not isinstance(error, DeadlineExceededError):
        return
    if len(skill_ids) > 1:
        for skill_id in skill_ids:
            _send_to_embed(services, task, [skill_id])
        return
    part = "the sections of " if task is EMBED_SECTIONS else ""
    reason = f"embedding {part}{skill_ids[0]} failed: {type(error).__name__}: {error}"
    services.coordinator.task_error = reason
    if not isinstance(error, TransientError):
        pause_failed(services, task, skill_ids[0], reason)


def pause_failed(services: Services, task: TaskPolicy, skill_id: str, reason: str) -> None:
    """Have `drop_paused` leave out the present revision of a skill for a day: it would fail again
    each time."""
    for entry in services.graph.get_entries([skill_id]):
        name = _pause_name(task, entry.key)
        services.coordinator.pause(name, reason, _FAILED_SECONDS)


def defer_refine(coordinator: Coordinator, skill_id: str, reason: str) -> None:
    """Have `send_refine` send a skill last for an hour: a question about it may fail each time."""
    coordinator.pause(_deferral_name(skill_id), reason, _DEFERRED_SECONDS)


def _deferral_name(skill_id: str) -> str:
    return f"{REFINE.name} last {skill_id}"


def drop_paused(
    coordinator: Coordinator, task: TaskPolicy, keys: Sequence[RevisionKey]
) -> list[RevisionKey]:
    """Return the revisions for which the task is not paused by `pause_failed`."""
    names = {_pause_name(task, key): key for key in keys}
    paused = coordinator.find_paused(list(names))
    return [key for name, key in names.items() if name not in paused]


def _pause_name(task: TaskPolicy, key: RevisionKey) -> str:
    return f"{task.name} {key.seq}:{key.skill_id}"


def send_refine(coordinator: Coordinator, send_task: SendTask, skill_ids: Sequence[str]) -> None:
    """Send published skills to `refine`, in batches and in this order; deferred skills last."""
    deferred = coordinator.find_paused([_deferral_name(one) for one in skill_ids])
    ordered = sorted(skill_ids, key=lambda one: _deferral_name(one) in deferred)
    for batch in batches(ordered, _REFINE_BATCH_SKILLS):
        coordinator.add_pending(REFINE.name, 1)
        send_task(REFINE.name, batch)
