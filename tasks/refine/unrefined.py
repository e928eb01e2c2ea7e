"""Functions that find published skills without refinements and send them to be refined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from graph.entry_filter import EntryFilter
from graph.protocol import Catalog
from graph.records import CatalogEntry, SkillState
from skills.batches import batches
from tasks.coordination.protocol import Coordinator
from tasks.ingest.next_tasks import drop_paused, send_refine
from tasks.language_model.answer_store import AnswerStore, RefinementKind
from tasks.policies import REFINE
from tasks.refine.pauses import get_refine_pause
from tasks.refine.refined_subjects import RefinedSubjects
from tasks.refine.stage import RefineStage
from tasks.services import Services

MAX_SENT = 2_000
"""Maximum skills that are sent to be refined at a time; further skills follow when these are
done."""

_CATALOG_BATCH = 2_000
_RESEND_SECONDS = 60.0


def list_published(graph: Catalog, source_id: str | None = None) -> list[CatalogEntry]:
    """Return the published entries of the catalog, or of one source, by id."""
    selection = EntryFilter(source_id=source_id, state=SkillState.PUBLISHED)
    found: list[CatalogEntry] = []
    while batch := graph.list_entries(
        selection, found[-1].skill_id if found else "", _CATALOG_BATCH
    ):
        found += batch
    return found


def find_unrefined(
    answers: AnswerStore,
    refined: RefinedSubjects,
    model: str,
    stages: Iterable[RefineStage],
    entries: Sequence[CatalogEntry],
) -> dict[str, list[CatalogEntry]]:
    """Return, by stage, the entries whose content has no refinement of this model."""
    hashes = {entry.content_hash for entry in entries}
    found: dict[str, list[CatalogEntry]] = {}
    for stage in stages:
        kind = RefinementKind(stage.name, model, stage.version)
        missing = refined.find_missing(answers, kind, hashes)
        found[stage.name] = [entry for entry in entries if entry.content_hash in missing]
    return found


def send_unrefined_skills(services: Services) -> int:
    """Send published skills without refinements to be refined, at most MAX_SENT; return how many.

    Leaves out skills for which an ingest is requested: it sends them itself. Sends nothing while
    refine tasks run or wait, or while refinement is paused.
    """
    settings, answers = services.settings.language_model, services.answers
    if answers is None or not settings.offline_stages or not services.sends_refine:
        return 0
    coordinator = services.coordinator
    if coordinator.count_pending(REFINE.name) or get_refine_pause(coordinator, settings):
        return 0
    if not coordinator.claim_if_due("resend refine", _RESEND_SECONDS):
        return 0
    from tasks.refine.stages import list_enabled_stages  # only if a model is configured

    stages = list_enabled_stages(settings)
    entries = [one for one in list_published(services.graph) if not one.awaits_ingest]
    missing = find_unrefined(answers, services.refined, settings.model, stages, entries)
    skill_ids = _select_to_send(coordinator, missing.values()) or _list_compared(services)
    send_refine(coordinator, services.send_task, skill_ids)
    return len(skill_ids)


def _select_to_send(
    coordinator: Coordinator, groups: Iterable[Sequence[CatalogEntry]]
) -> list[str]:
    """Return the first MAX_SENT ids of several lists of entries, without paused revisions."""
    keys = sorted({entry.key for group in groups for entry in group})
    kept = (
        key.skill_id
        for some in batches(keys, MAX_SENT)
        for key in drop_paused(coordinator, REFINE, some)
    )
    return list(islice(kept, MAX_SENT))


def _list_compared(services: Services) -> list[str]:
    """Return a skill that queries compared with another one, if any: its task asks about such
    pairs."""
    if not services.settings.language_model.uses("links"):
        return []
    from tasks.refine.linking.rejected import find_unasked_pairs

    return [pair.texts[0].skill_id for pair in find_unasked_pairs(services, limit=1)]
