"""Application of a completion: the skill is ingested again, with the completion in its document.

Documents are write-once, so a completion needs a new revision of the same content.
"""

from __future__ import annotations

from typing import Any

from search.protocol import StoredRevision
from skills.record import RevisionKey
from tasks.ingest.next_tasks import send_ingest
from tasks.refine.completion.completions import completion_kinds, to_completion
from tasks.refine.stage import RefineContext, RefineStage
from tasks.services import Services


def apply_completion(
    context: RefineContext,
    stage: RefineStage,
    revision: StoredRevision,
    refinement: dict[str, Any],
) -> None:
    """Store the refinement and request ingest of the skill, unless its document has the completion.

    The refinement is stored here because ingest reads the store. Ingest is requested before and
    after, so that no crash leaves a stored refinement without a request.
    """
    services, kind = context.services, context.kind(stage)
    if kind not in completion_kinds(services.settings.language_model):
        return
    completion = to_completion(kind, refinement)
    present = {one.origin for one in revision.parsed.record.completions}
    if completion is None or completion.origin in present:
        return
    if not _request_ingest(services, revision.key):
        return
    context.answers.save_refinements(kind, {revision.content_hash: refinement})
    _request_ingest(services, revision.key)
    send_ingest(services, [revision.key.skill_id])


def _request_ingest(services: Services, key: RevisionKey) -> bool:
    """Request ingest of a skill, if this is its published revision."""
    graph = services.graph
    # Before the entry is read: a skill that is removed meanwhile does not come back.
    seq = graph.allocate_sequence(1)[0]
    wanted = [one.place for one in graph.get_entries([key.skill_id]) if one.seq == key.seq]
    if wanted:
        graph.request_ingest(wanted, seq)
    return bool(wanted)
