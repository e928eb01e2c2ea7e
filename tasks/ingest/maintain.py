"""Maintain: send again what a crash lost, sweep what no reader can see (spec §4.6)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog
from structlog.contextvars import bound_contextvars

from graph.protocol import CatalogEntry
from skills.record import RevisionKey
from skills.scanner import SCANNER_VERSION, rescan
from tasks.ingest.embed_sections import send_unembedded_skills
from tasks.ingest.ingest import needs_ingest
from tasks.ingest.poll import poll_sources
from tasks.policies import INGEST, LINK, PLAN, QUERY, Deadline
from tasks.services import Services
from tasks.sources.uploads.install import delete_expired_uploads

log = structlog.get_logger()

_BATCH = 16
_LIMIT = 20_000
_RESCAN_BATCH = 1_000


def maintain(services: Services, deadline: Deadline, ids: Sequence[str] = ()) -> dict[str, object]:
    """Send again what was lost, sweep orphans, forget what is long over; reports what it did.

    Safe where several run: one process does it at a time.
    """
    del ids
    coordinator, workers = services.coordinator, services.settings.workers
    with coordinator.try_lock("maintain") as acquired:
        if not acquired:
            return {"skipped": "another process is at it"}
        report: dict[str, object] = {"taken_over": resend_stalled_tasks(services)}
        report.update(resend_open_work(services))
        report["polled"] = poll_sources(services)
        deadline.check("maintain")
        report["remarked"] = rescan_outdated(services)
        if coordinator.claim_if_due("sweep", workers.sweep_seconds):
            advance_sequence(services)
            orphans, lost = compare_stores(services)
            report["swept"] = delete_orphans(services, orphans)
            deadline.check("sweep")
            report["asked_again"] = request_reingest(services, lost)
            report["uploads_swept"] = delete_expired_uploads(services)
            report["pruned"] = services.graph.prune_removed(workers.journal_days * 86_400)
        report["forgotten"] = services.journal.delete_ended_jobs(
            "event", workers.journal_days * 86_400
        )
        report["expired"] = services.journal.delete_ended_jobs("query", workers.answer_minutes * 60)
        return report


def rescan_outdated(services: Services) -> int:
    """Have the catalog know what this scanner says of skills that an older one marked; how many.

    Some hundreds a time, so that nothing waits for it. Their revisions and vectors stay; what is
    read of them meanwhile is scanned by whoever reads it.
    """
    keys = services.graph.list_scanned_before(SCANNER_VERSION, _RESCAN_BATCH)
    levels: dict[RevisionKey, int] = {}
    for start in range(0, len(keys), _BATCH):
        services.coordinator.yield_to_queries()
        found = services.index.get_revisions(keys[start : start + _BATCH])
        levels |= {key: rescan(one.parsed).record.safety_level for key, one in found.items()}
    if levels:
        services.graph.update_safety_levels(levels, SCANNER_VERSION)
        log.info("marked anew by a newer scanner", skills=len(levels))
    return len(levels)


def resend_stalled_tasks(services: Services) -> int:
    """Send again what workers had begun when they died; returns how many tasks."""
    stalled = services.coordinator.get_stalled_tasks()
    for one in stalled:
        log.warning("taken over from a worker that died", task=one.task, ids=one.ids[:10])
        with bound_contextvars(trace_id=one.trace_id):
            services.send_task(one.task, list(one.ids))
    return len(stalled)


def repair_catalog(services: Services) -> None:
    """Bring catalog and index in line after one was moved away or brought back from a copy."""
    advance_sequence(services)
    _, lost = compare_stores(services)
    request_reingest(services, lost)


def compare_stores(services: Services) -> tuple[list[RevisionKey], list[str]]:
    """Revisions in the index that no pointer leads to; skills whose revision is not in it.

    While skills are on their way only superseded revisions are told: all else may be half done.
    """
    coordinator, index = services.coordinator, services.index
    quiet = not coordinator.pending_ingest_tasks
    stored, partial_keys = index.list_keys(), index.partial_keys()
    # What is written by now may be published a moment later.
    quiet = quiet and not coordinator.pending_ingest_tasks
    pointers = services.graph.get_changes_since(0).pointers
    orphans = [
        key
        for key in (*stored, *partial_keys)
        if key.seq < (seq := pointers.get(key.skill_id, 0)) or (quiet and key.seq != seq)
    ]
    if not quiet:
        return orphans, []
    found = set(stored)
    lost = [name for name, seq in pointers.items() if seq and RevisionKey(name, seq) not in found]
    return orphans, lost


def request_reingest(services: Services, lost: Sequence[str]) -> int:
    """Have published skills ingested again whose revisions are not in the index."""
    if lost:
        log.warning("revisions missing from the index are ingested again", skills=len(lost))
        graph = services.graph
        wanted = [
            (entry.skill_id, entry.source_id, entry.path) for entry in graph.get_entries(lost)
        ]
        graph.request_ingest(wanted, graph.allocate_sequence(1)[0])
    return len(lost)


def advance_sequence(services: Services) -> None:
    """Have new seqs start above all that the index holds.

    After the catalog was brought back from a copy its counter is behind, and a revision would
    meet an old document under its key; so whoever opens the stores for writing does this first.
    """
    behind = services.index.max_seq() - services.graph.allocate_sequence(0).stop + 1
    if behind > 0:
        log.warning("the counter of the catalog was behind the index", by=behind)
        services.graph.allocate_sequence(behind)


def resend_open_work(services: Services) -> dict[str, object]:
    """Send tasks for everything that the journal and the catalog say is unfinished.

    While skills are on their way they are left alone: what is sent twice is done twice.
    """
    services.coordinator.task_error = ""
    events = services.journal.list_open_jobs("event")
    for event_id in events:
        with bound_contextvars(trace_id=event_id):
            services.send_task(PLAN.name, [event_id])
    queries = services.journal.list_open_jobs("query")
    for query_id in queries:
        with bound_contextvars(trace_id=query_id):
            services.send_task(QUERY.name, [query_id])
    report: dict[str, object] = {"events": len(events), "queries": len(queries)}
    if services.coordinator.pending_ingest_tasks:
        return report
    waiting = services.graph.list_awaiting_ingest(_LIMIT)
    _resend_ingest(services, waiting)
    under_way = bool(waiting) or bool(services.coordinator.pending_embed_tasks)
    unembedded = 0 if under_way else send_unembedded_skills(services)
    if services.graph.list_awaiting_linking(1):
        services.send_task(LINK.name, [])
    return report | {"ingest": len(waiting), "page": unembedded}


def _resend_ingest(services: Services, waiting: Sequence[CatalogEntry]) -> None:
    """Send skills to be ingested, under the trace of what asked for the first of a batch."""
    requests = services.coordinator.get_ingest_requests(
        sorted({entry.requested_seq for entry in waiting})
    )
    for start in range(0, len(waiting), _BATCH):
        batch = waiting[start : start + _BATCH]
        ids = [entry.skill_id for entry in batch]
        found = (requests.get(entry.requested_seq) for entry in batch)
        known = list(dict.fromkeys(one.trace_id for one in found if one is not None))
        with bound_contextvars(**({"trace_id": known[0]} if known else {})):
            services.coordinator.add_ingest_tasks(1)
            services.send_task(INGEST.name, ids)
            log.info("sent again", sent=INGEST.name, ids=ids, also_traces=known[1:])


def delete_orphans(services: Services, orphans: Sequence[RevisionKey]) -> int:
    """Delete revisions that no pointer leads to and no running ingest can still publish.

    A superseded revision stays for `workers.keep_seconds`, so that a query that chose it before
    can still read it. What the catalog has never heard of stays too: the catalog may be a wrong or
    an old one.
    """
    entries = services.graph.get_entries(sorted({key.skill_id for key in orphans}))
    before = time.time() - services.settings.workers.keep_seconds
    settled = {
        entry.skill_id: entry.seq
        for entry in entries
        if not needs_ingest(entry) and entry.updated <= before
    }
    due = [key for key in orphans if settled.get(key.skill_id, key.seq) != key.seq]
    if due:
        services.index.delete(due)
        log.info("swept", revisions=len(due))
    return len(due)
