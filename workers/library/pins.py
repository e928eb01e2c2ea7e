"""Pins of skills to a revision: addition and removal."""

from __future__ import annotations

import time

from config.errors import NotFoundError, UsageError
from config.settings import Settings
from graph.entry_filter import EntryFilter
from graph.protocol import SkillGraph
from graph.records import CatalogEntry, SkillState
from search.revision_history import Pin, RevisionHistory
from workers.library.reasons import check_reason
from workers.library.revisions import RevisionReader, not_pinned
from workers.library.skill_reader import iterate_entries, require_entry


def pin_skill(
    settings: Settings,
    graph: SkillGraph,
    history: RevisionHistory,
    reader: RevisionReader,
    skill_id: str,
    seq: int | None,
    reason: str,
) -> Pin:
    """Pin a skill to one of its revisions, by default the published one, and request its ingest.

    Raises NotFoundError if the skill or revision does not exist, UsageError for an invalid reason,
    for a skill without a published revision, and if no revisions are kept.
    """
    check_reason(reason, "a pin")
    if not settings.history.revisions:
        raise UsageError(
            "history.revisions is 0, so no revision can be pinned; set it to 1 or more"
        )
    entry = require_entry(graph, skill_id)
    revision = reader.choose_revision(skill_id, seq)
    if not revision.is_reviewed:
        raise UsageError(
            f"{revision.kept.key} waits for a review: approve it with `skillbus review approve`, "
            "then pin it"
        )
    history.keep([revision.kept])
    pin = Pin(skill_id, revision.seq, revision.kept.content_hash, reason.strip(), time.time())
    if not history.set_pin(pin):  # deleted meanwhile, as older than the revisions to keep
        raise NotFoundError(
            f"revision {revision.seq} of {skill_id} is not kept any more; "
            "`skillbus skills history` lists those that are"
        )
    request_ingest(graph, entry)
    return pin


def unpin_skill(graph: SkillGraph, history: RevisionHistory, skill_id: str) -> None:
    """Remove a pin and request ingest of the source's content; raises
    NotFoundError without a pin."""
    if not history.remove_pin(skill_id):
        raise not_pinned(skill_id)
    for entry in graph.get_entries([skill_id]):
        request_ingest(graph, entry)


def list_published_of(graph: SkillGraph, source_id: str) -> list[str]:
    """Return the published skills of a source; raises NotFoundError if it has none."""
    selection = EntryFilter(source_id, SkillState.PUBLISHED)
    found = [entry.skill_id for entry in iterate_entries(graph, selection)]
    if not found:
        raise NotFoundError(f"source {source_id!r} has no published skill")
    return found


def request_ingest(graph: SkillGraph, entry: CatalogEntry) -> None:
    """Request that ingest decides again which content a skill is published with.

    The reconciler sends the task. A removed skill is ingested once its source has it again.
    """
    if entry.state is not SkillState.REMOVED:
        seq = graph.allocate_sequence(1)[0]
        graph.request_ingest([entry.place], seq)
