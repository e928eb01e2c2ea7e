"""Maintain: send again what a crash lost, sweep what no reader can see (spec §4.6)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog
from structlog.contextvars import bound_contextvars

from graph.protocol import Entry
from skills.record import RevisionKey
from skills.scanner import SCANNER, remarked
from tasks.ingest.embed_sections import send_unpaged
from tasks.ingest.ingest import is_waiting
from tasks.ingest.poll import poll
from tasks.policies import INGEST, LINK, PLAN, QUERY, Deadline
from tasks.services import Services
from tasks.sources.uploads.arrival import sweep_uploads

log = structlog.get_logger()

_BATCH = 16
_LIMIT = 20_000
_MARKED_AT_ONCE = 1_000


def maintain(services: Services, deadline: Deadline, ids: Sequence[str] = ()) -> dict[str, object]:
    """Send again what was lost, sweep orphans, forget what is long over; reports what it did.

    Safe where several run: one process does it at a time.
    """
    del ids
    activity, workers = services.activity, services.settings.workers
    with activity.exclusive("maintain") as first:
        if not first:
            return {"skipped": "another process is at it"}
        report: dict[str, object] = {"taken_over": take_over(services)}
        report.update(resend(services))
        report["polled"] = poll(services)
        deadline.check("maintain")
        report["remarked"] = mark_anew(services)
        if activity.is_due("sweep", workers.sweep_seconds):
            raise_counter(services)
            orphans, lost = compare(services)
            report["swept"] = sweep(services, orphans)
            deadline.check("sweep")
            report["asked_again"] = ask_again(services, lost)
            report["uploads_swept"] = sweep_uploads(services)
            report["pruned"] = services.graph.prune(workers.journal_days * 86_400)
        report["forgotten"] = services.journal.forget("event", workers.journal_days * 86_400)
        report["expired"] = services.journal.forget("query", workers.answer_minutes * 60)
        return report


def mark_anew(services: Services) -> int:
    """Have the catalog know what this scanner says of skills that an older one marked; how many.

    Some hundreds a time, so that nothing waits for it. Their revisions and vectors stay; what is
    read of them meanwhile is scanned by whoever reads it.
    """
    keys = services.graph.scanned_before(SCANNER, _MARKED_AT_ONCE)
    levels: dict[RevisionKey, int] = {}
    for start in range(0, len(keys), _BATCH):
        services.activity.let_queries_pass()
        found = services.index.read(keys[start : start + _BATCH])
        levels |= {key: remarked(one.parsed).record.safety_level for key, one in found.items()}
    if levels:
        services.graph.mark_safety(levels, SCANNER)
        log.info("marked anew by a newer scanner", skills=len(levels))
    return len(levels)


def take_over(services: Services) -> int:
    """Send again what workers had begun when they died; returns how many tasks."""
    abandoned = services.activity.abandoned()
    for one in abandoned:
        log.warning("taken over from a worker that died", task=one.task, ids=one.ids[:10])
        with bound_contextvars(trace_id=one.trace_id):
            services.send(one.task, list(one.ids))
    return len(abandoned)


def repair(services: Services) -> None:
    """Bring catalog and index in line after one was moved away or brought back from a copy."""
    raise_counter(services)
    _, lost = compare(services)
    ask_again(services, lost)


def compare(services: Services) -> tuple[list[RevisionKey], list[str]]:
    """Revisions in the index that no pointer leads to; skills whose revision is not in it.

    While skills are on their way only superseded revisions are told: all else may be half done.
    """
    activity, index = services.activity, services.index
    quiet = not activity.ingesting
    stored, remnants = index.keys(), index.remnants()
    # What is written by now may be published a moment later.
    quiet = quiet and not activity.ingesting
    pointers = services.graph.changes(0).pointers
    orphans = [
        key
        for key in (*stored, *remnants)
        if key.seq < (seq := pointers.get(key.skill_id, 0)) or (quiet and key.seq != seq)
    ]
    if not quiet:
        return orphans, []
    found = set(stored)
    lost = [name for name, seq in pointers.items() if seq and RevisionKey(name, seq) not in found]
    return orphans, lost


def ask_again(services: Services, lost: Sequence[str]) -> int:
    """Have published skills ingested again whose revisions are not in the index."""
    if lost:
        log.warning("revisions missing from the index are ingested again", skills=len(lost))
        graph = services.graph
        wanted = [(entry.skill_id, entry.source_id, entry.path) for entry in graph.entries(lost)]
        graph.request(wanted, graph.take_seqs(1)[0])
    return len(lost)


def raise_counter(services: Services) -> None:
    """Have new seqs start above all that the index holds.

    After the catalog was brought back from a copy its counter is behind, and a revision would
    meet an old document under its key; so whoever opens the stores for writing does this first.
    """
    behind = services.index.newest() - services.graph.take_seqs(0).stop + 1
    if behind > 0:
        log.warning("the counter of the catalog was behind the index", by=behind)
        services.graph.take_seqs(behind)


def resend(services: Services) -> dict[str, object]:
    """Send tasks for everything that the journal and the catalog say is unfinished.

    While skills are on their way they are left alone: what is sent twice is done twice.
    """
    services.activity.trouble = ""
    events = services.journal.open_jobs("event")
    for event_id in events:
        with bound_contextvars(trace_id=event_id):
            services.send(PLAN.name, [event_id])
    queries = services.journal.open_jobs("query")
    for query_id in queries:
        with bound_contextvars(trace_id=query_id):
            services.send(QUERY.name, [query_id])
    report: dict[str, object] = {"events": len(events), "queries": len(queries)}
    if services.activity.ingesting:
        return report
    waiting = services.graph.waiting(_LIMIT)
    _ingest_again(services, waiting)
    under_way = bool(waiting) or bool(services.activity.paging)
    unpaged = 0 if under_way else send_unpaged(services)
    if services.graph.unlinked(1):
        services.send(LINK.name, [])
    return report | {"ingest": len(waiting), "page": unpaged}


def _ingest_again(services: Services, waiting: Sequence[Entry]) -> None:
    """Send skills to be ingested, under the trace of what asked for the first of a batch."""
    requests = services.activity.requests(sorted({entry.wanted_seq for entry in waiting}))
    for start in range(0, len(waiting), _BATCH):
        batch = waiting[start : start + _BATCH]
        ids = [entry.skill_id for entry in batch]
        found = (requests.get(entry.wanted_seq) for entry in batch)
        known = list(dict.fromkeys(one.trace_id for one in found if one is not None))
        with bound_contextvars(**({"trace_id": known[0]} if known else {})):
            services.activity.ingest(1)
            services.send(INGEST.name, ids)
            log.info("sent again", sent=INGEST.name, ids=ids, also_traces=known[1:])


def sweep(services: Services, orphans: Sequence[RevisionKey]) -> int:
    """Delete revisions that no pointer leads to and no running ingest can still publish.

    A superseded revision stays for `workers.keep_seconds`, so that a query that chose it before
    can still read it. What the catalog has never heard of stays too: the catalog may be a wrong or
    an old one.
    """
    entries = services.graph.entries(sorted({key.skill_id for key in orphans}))
    before = time.time() - services.settings.workers.keep_seconds
    settled = {
        entry.skill_id: entry.seq
        for entry in entries
        if not is_waiting(entry) and entry.updated <= before
    }
    due = [key for key in orphans if settled.get(key.skill_id, key.seq) != key.seq]
    if due:
        services.index.delete(due)
        log.info("swept", revisions=len(due))
    return len(due)
