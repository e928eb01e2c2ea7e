"""Choose and send the tasks of ingest, counting those that others wait for.

`pipeline` shows which task sends which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graph.records import Source
from search.batches import batches
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
    TaskPolicy,
)
from tasks.services import SendTask, Services
from tasks.sources.readers import find_source

_EMBED_BATCH_SKILLS = 64
_SECTION_BATCH_SKILLS = 16
_MAX_WAITING = 20_000
_REFINE_BATCH_SKILLS = 16


def first_task(data: EventData) -> TaskPolicy:
    """The task that an accepted event is sent to: RECORD_OUTCOMES for outcomes, FETCH if it says
    that its source is a git repository, else PLAN, which knows the sources and forwards to FETCH.
    """
    if isinstance(data, OutcomesReported):
        return RECORD_OUTCOMES
    is_git = isinstance(data, SourceChanged) and (data.git is not None or data.pushed is not None)
    return FETCH if is_git else PLAN


def needs_fetch(data: EventData, list_sources: Callable[[], Iterable[Source]]) -> bool:
    """Whether an event is about a git source, whose content has to be fetched first."""
    if not isinstance(data, SourceChanged):
        return False
    if data.git is not None:
        return True
    source = find_source(list_sources(), data.source_id)
    return source is not None and source.kind == "git"


def send_plan(services: Services, event_ids: Sequence[str]) -> None:
    """Have accepted events carried out."""
    services.send_task(PLAN.name, event_ids)


def send_fetch(services: Services, event_ids: Sequence[str]) -> None:
    """Have accepted events of git sources carried out."""
    services.send_task(FETCH.name, event_ids)


def send_ingest(services: Services, skill_ids: Sequence[str]) -> None:
    """Have one batch of skills ingested, for which the catalog holds a request."""
    services.coordinator.add_pending(INGEST.name, 1)
    services.send_task(INGEST.name, skill_ids)


def send_link(services: Services) -> None:
    """Have all skills linked that are marked for it."""
    services.send_task(LINK.name, [])


def send_after_ingest(services: Services, published: Sequence[RevisionKey], others: int) -> None:
    """Send what follows ingest: linking and embedding once all of a large change is published.

    published: without skill vectors. others: ingest tasks that still run or wait. While skills are
    being embedded, those that were just published are sent at once.
    """
    if not others:
        send_link(services)
    if services.coordinator.count_pending(EMBED_SKILLS.name):
        send_embed_skills(services, [key.skill_id for key in published])
    elif not others:
        send_unembedded(services)


def send_embed_skills(services: Services, skill_ids: Sequence[str]) -> None:
    """Have the skill vectors of skills computed, in batches and in this order."""
    _send_batches(services, EMBED_SKILLS, skill_ids, _EMBED_BATCH_SKILLS)


def send_embed_sections(services: Services, skill_ids: Sequence[str]) -> None:
    """Have the sections of skills embedded, in batches and in this order."""
    _send_batches(services, EMBED_SECTIONS, skill_ids, _SECTION_BATCH_SKILLS)


def _send_batches(
    services: Services, task: TaskPolicy, skill_ids: Sequence[str], size: int
) -> None:
    for batch in batches(skill_ids, size):
        services.coordinator.add_pending(task.name, 1)
        services.send_task(task.name, batch)


def send_unembedded(services: Services) -> dict[str, int]:
    """Have published skills without skill vectors embedded, most used first; once few are left, the
    sections of those without section vectors. Returns how many were sent, by task.

    Nothing is sent twice: tasks that run or wait send the rest when they are done. A few skills
    that cannot be embedded do not hold up the sections of others.
    """
    graph, coordinator = services.graph, services.coordinator
    sent = {"embed_skills": 0, "embed_sections": 0}
    if coordinator.count_pending(EMBED_SKILLS.name):
        return sent
    skills = graph.list_awaiting_vectors(_MAX_WAITING)
    send_embed_skills(services, [key.skill_id for key in skills])
    sent["embed_skills"] = len(skills)
    if len(skills) <= _EMBED_BATCH_SKILLS and not coordinator.count_pending(EMBED_SECTIONS.name):
        skills = graph.list_awaiting_embedding(_MAX_WAITING)
        send_embed_sections(services, [key.skill_id for key in skills])
        sent["embed_sections"] = len(skills)
    return sent


def send_refine(coordinator: Coordinator, send_task: SendTask, skill_ids: Sequence[str]) -> None:
    """Have published skills refined by a language model, in batches and in this order."""
    for batch in batches(skill_ids, _REFINE_BATCH_SKILLS):
        coordinator.add_pending(REFINE.name, 1)
        send_task(REFINE.name, batch)
