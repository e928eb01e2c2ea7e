"""Choose and send the tasks of ingest, counting those that others wait for.

`pipeline` shows which task sends which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graph.records import Source
from skills.events import EventData, OutcomesReported, SourceChanged
from tasks.coordination.protocol import Coordinator
from tasks.policies import (
    EMBED_SECTIONS,
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

_EMBED_BATCH_SKILLS = 16
_MAX_UNEMBEDDED = 20_000
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
    services.coordinator.add_ingest_tasks(1)
    services.send_task(INGEST.name, skill_ids)


def send_link(services: Services) -> None:
    """Have all skills linked that are marked for it."""
    services.send_task(LINK.name, [])


def send_embed_sections(services: Services, skill_ids: Sequence[str]) -> None:
    """Have the sections of skills embedded, in batches and in this order."""
    for start in range(0, len(skill_ids), _EMBED_BATCH_SKILLS):
        services.coordinator.add_embed_tasks(1)
        services.send_task(EMBED_SECTIONS.name, skill_ids[start : start + _EMBED_BATCH_SKILLS])


def send_unembedded_skills(services: Services) -> int:
    """Have every published skill without section vectors embedded, most used first; how many."""
    waiting = [key.skill_id for key in services.graph.list_awaiting_embedding(_MAX_UNEMBEDDED)]
    send_embed_sections(services, waiting)
    return len(waiting)


def send_refine(coordinator: Coordinator, send_task: SendTask, skill_ids: Sequence[str]) -> None:
    """Have published skills refined by a language model, in batches and in this order."""
    for start in range(0, len(skill_ids), _REFINE_BATCH_SKILLS):
        coordinator.add_refine_tasks(1)
        send_task(REFINE.name, skill_ids[start : start + _REFINE_BATCH_SKILLS])
