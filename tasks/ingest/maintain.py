"""The reconciler: resends work that a crash lost, and deletes obsolete data."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import structlog
from structlog.contextvars import bound_contextvars

from config import tracing
from config.errors import PermanentError
from graph.entry_filter import EntryFilter
from graph.records import CatalogEntry, RevisionScan, SkillState
from skills.batches import batches
from skills.events import get_trace_context
from skills.record import ParsedSkill, RevisionKey, get_source_id
from skills.review import collect_rule_ids
from skills.scanner import SCANNER_VERSION, rescan
from tasks.history.keep import keep_orphans
from tasks.ingest.diff import get_source_ids
from tasks.ingest.held.reviewed import request_decided
from tasks.ingest.next_tasks import send_ingest, send_link, send_plan, send_unembedded
from tasks.ingest.poll import poll_sources
from tasks.ingest.upgrade.reparse import reparse_outdated
from tasks.journal.protocol import trace_of
from tasks.outcomes.links.mark_changed import has_unread_outcomes
from tasks.outcomes.record_answers import record_missing_answers
from tasks.outcomes.usage.roll_up import needs_roll_up
from tasks.policies import INGEST, QUERY, RECORD_OUTCOMES, ROLL_UP, Deadline
from tasks.refine.completion.completions import completion_origins, find_lacking
from tasks.refine.linking.link_origin import mark_for_changed_origin
from tasks.refine.unrefined import send_unrefined_skills
from tasks.services import Services
from tasks.sources.uploads.install import delete_expired_uploads

log = structlog.get_logger()

_BATCH_SKILLS = 16
_MAX_AWAITING_INGEST = 20_000
_MAX_RESCANNED = 1_000
_PRUNED_BATCH = 1_000
_MAX_RECOMPLETED = 1_000
_COMPLETION_BATCH = 500
_SECONDS_PER_DAY = 86_400

DELETION = "deletion"
"""Name of a pause of the coordinator: during it, no revision is deleted from the index."""


def maintain(services: Services, deadline: Deadline, ids: Sequence[str] = ()) -> dict[str, object]:
    """Run the reconciler's steps, one process at a time; returns what each step did.

    Takes no ids. Every `workers.sweep_seconds` it also compares the stores and deletes obsolete
    data.
    """
    del ids
    with services.coordinator.try_lock("maintain") as acquired:
        if not acquired:
            return {"skipped": "another process runs the reconciler"}
        report: dict[str, object] = {"stalled_tasks": resend_stalled_tasks(services)}
        report["marked_for_linking"] = mark_for_changed_origin(services)
        report |= resend_open_work(services)
        report["polled_sources"] = poll_sources(services)
        deadline.check("maintain")
        report["rescanned"] = rescan_outdated(services)
        report["reparsed"] = reparse_outdated(services, deadline)
        deadline.check("reparse")
        if needs_roll_up(services):
            services.send_task(ROLL_UP.name, [])
        if services.coordinator.claim_if_due("sweep", services.settings.workers.sweep_seconds):
            report |= _sweep(services, deadline)
        return report | _delete_ended_jobs(services)


def _sweep(services: Services, deadline: Deadline) -> dict[str, object]:
    """Compare catalog and index, and delete data that is no longer reachable."""
    advance_sequence(services)
    # First, so that few of the revisions that saved statistics count are deleted below.
    services.library.save()
    orphans, missing = compare_stores(services)
    deletable = [] if services.coordinator.get_pause(DELETION) else orphans
    report: dict[str, object] = {"deleted_revisions": delete_orphans(services, deletable)}
    deadline.check("sweep")
    report["reingested"] = request_reingest(services, missing)
    report["reviewed"] = request_decided(services)
    report["recompleted"] = request_completions(services)
    report["deleted_uploads"] = delete_expired_uploads(services)
    report["deleted_entries"] = _prune_removed(services)
    return report


def _prune_removed(services: Services) -> int:
    """Delete the entries of skills that were removed long ago; returns how many.

    Their history is deleted first, since only the entries name it after a crash.
    """
    before = time.time() - services.settings.workers.journal_days * _SECONDS_PER_DAY
    if services.history is not None:
        removed, after = EntryFilter(state=SkillState.REMOVED), ""
        while entries := services.graph.list_entries(removed, after, _PRUNED_BATCH):
            due = [one for one in entries if one.updated < before and not one.awaits_ingest]
            services.history.forget([one.skill_id for one in due])
            after = entries[-1].skill_id
    return len(services.graph.prune_removed(time.time() - before))


def _delete_ended_jobs(services: Services) -> dict[str, object]:
    workers, journal = services.settings.workers, services.journal
    record_missing_answers(services)
    return {
        "deleted_events": journal.delete_ended_jobs(
            "event", workers.journal_days * _SECONDS_PER_DAY
        ),
        "deleted_outcome_reports": journal.delete_ended_jobs(
            "outcome", workers.journal_days * _SECONDS_PER_DAY
        ),
        "deleted_queries": journal.delete_ended_jobs("query", workers.answer_minutes * 60),
    }


def rescan_outdated(services: Services) -> int:
    """Update the catalog's data from scans by an older scanner, or by a version of skillbus that
    stored less; returns the number of skills.

    At most 1,000 skills per call, so that other maintenance is not delayed. Revisions and vectors
    stay. A skill that is read before this update is scanned by the reader.
    """
    graph = services.graph
    keys = graph.list_scanned_before(SCANNER_VERSION, _MAX_RESCANNED)
    scans: dict[RevisionKey, RevisionScan] = {}
    for batch in batches(keys, _BATCH_SKILLS):
        services.coordinator.yield_to_queries()
        found = services.index.get_revisions(batch)
        scans |= {key: _scan(one.parsed) for key, one in found.items()}
    if scans:
        graph.save_scans(scans, SCANNER_VERSION)
        log.info("skills scanned again", skills=len(scans))
    rules_version = 0 if keys else SCANNER_VERSION
    if graph.get_rules_version() != rules_version:
        graph.set_rules_version(rules_version)
    return len(scans)


def _scan(parsed: ParsedSkill) -> RevisionScan:
    record = rescan(parsed).record
    return RevisionScan(record.safety_level, collect_rule_ids(record.safety), record.has_scripts)


def resend_stalled_tasks(services: Services) -> int:
    """Send the tasks again that workers were running when they died; returns how many."""
    stalled = services.coordinator.get_stalled_tasks()
    for one in stalled:
        log.warning("task of a dead worker sent again", task=one.task, ids=one.ids[:10])
        with bound_contextvars(trace_id=one.trace_id), tracing.resume(one.context):
            services.send_task(one.task, list(one.ids))
    return len(stalled)


def repair_catalog(services: Services) -> None:
    """Repair the catalog after it, or the index, was moved or restored from a backup."""
    services.library.drop_newer_saved()
    advance_sequence(services)
    _, missing = compare_stores(services)
    request_reingest(services, missing)


def compare_stores(services: Services) -> tuple[list[RevisionKey], list[str]]:
    """Return orphans, which are revisions in the index that the catalog does not point to, and the
    skills whose published revision is missing from the index, or whose source is gone: an ingest
    may have published them while the source was removed.

    While ingest tasks run, orphans include only superseded revisions and revisions of removed
    skills: others may be half written.
    """
    coordinator, index = services.coordinator, services.index
    quiet = not coordinator.count_pending(INGEST.name)
    stored, partial_keys = index.list_keys(), index.partial_keys()
    # Checked again after the keys were listed: the keys may belong to a task that began meanwhile.
    quiet = quiet and not coordinator.count_pending(INGEST.name)
    pointers = services.graph.get_changes_since(0).pointers

    def is_orphan(key: RevisionKey) -> bool:
        seq = pointers.get(key.skill_id)
        if seq is None:  # never published, or not in the catalog
            return quiet
        return key.seq < seq or (key.seq != seq and (quiet or seq == 0))

    orphans = [key for key in (*stored, *partial_keys) if is_orphan(key)]
    if not quiet:
        return orphans, []
    found = set(stored)
    sources = get_source_ids(services.graph)
    published = [RevisionKey(skill_id, seq) for skill_id, seq in pointers.items() if seq]
    missing = [
        key.skill_id
        for key in published
        if key not in found or get_source_id(key.skill_id) not in sources
    ]
    return orphans, missing


def request_reingest(services: Services, skill_ids: Sequence[str]) -> int:
    """Request ingest of skills that `compare_stores` misses; returns how many."""
    if skill_ids:
        log.warning("skills without revision or source are ingested again", skills=len(skill_ids))
        graph = services.graph
        # Before the entries are read: a skill that is removed meanwhile does not come back.
        seq = graph.allocate_sequence(1)[0]
        graph.request_ingest([entry.place for entry in graph.get_entries(skill_ids)], seq)
    return len(skill_ids)


def request_completions(services: Services) -> int:
    """Request ingest of published skills that lack a stored completion, as after the model was
    changed back; returns how many.

    At most 1,000 skills per call. Completions that are not in use are kept; searches ignore them.
    """
    if services.answers is None or not completion_origins(services.settings.language_model):
        return 0
    graph = services.graph
    # Before the entries are read: a skill that is removed meanwhile does not come back.
    seq = graph.allocate_sequence(1)[0]
    entries = [entry for entry in graph.get_entries() if entry.seq and not entry.awaits_ingest]
    lacking: set[RevisionKey] = set()
    for batch in batches(entries, _COMPLETION_BATCH):
        services.coordinator.yield_to_queries()
        lacking |= find_lacking(services, {one.key: one.content_hash for one in batch})
        if len(lacking) >= _MAX_RECOMPLETED:
            break
    wanted = [one.place for one in entries if one.key in lacking][:_MAX_RECOMPLETED]
    if wanted:
        graph.request_ingest(wanted, seq)
        log.info("ingest requested for completions", skills=len(wanted))
    return len(wanted)


def advance_sequence(services: Services) -> None:
    """Make new seqs greater than all in the index.

    The counter of a catalog that was restored from a backup is behind, and a new revision would
    get the key of an old document. So every process that opens the stores for writing calls this
    first.
    """
    kept = services.history.max_seq() if services.history is not None else 0
    behind = max(services.index.max_seq(), kept) - services.graph.last_sequence()
    if behind > 0:
        log.warning("the sequence counter of the catalog was behind index or history", by=behind)
        services.graph.allocate_sequence(behind)


def resend_open_work(services: Services) -> dict[str, object]:
    """Send tasks for all open jobs of the journal and all unfinished skills of the catalog.

    Skills are skipped while ingest tasks run or wait, since these would do the same work; queries
    are skipped while at least as many query tasks run or wait. Returns how many `events`,
    `queries`, `outcomes`, and skills for `ingest`, `embed_skills`, `embed_sections` and `refine`
    were sent.
    """
    services.coordinator.task_error = ""
    events = services.journal.list_open_jobs("event")
    if events:  # one plan handles all open events
        with _in_trace_of(services, events[0]):
            send_plan(services, events[:1])
    queries = _list_lost_queries(services)
    for query_id in queries:
        with _in_trace_of(services, query_id):
            services.send_task(QUERY.name, [query_id])
    outcomes = services.journal.list_open_jobs("outcome")
    for event_id in outcomes:
        with _in_trace_of(services, event_id):
            services.send_task(RECORD_OUTCOMES.name, [event_id])
    report: dict[str, object] = {
        "events": len(events),
        "queries": len(queries),
        "outcomes": len(outcomes),
    }
    if services.coordinator.count_pending(INGEST.name):
        return report
    waiting = services.graph.list_awaiting_ingest(_MAX_AWAITING_INGEST)
    _resend_ingest(services, waiting)
    unembedded = {} if waiting else send_unembedded(services)
    if services.graph.list_awaiting_linking(1) or has_unread_outcomes(services):
        send_link(services)
    report |= {"ingest": len(waiting), "embed_skills": 0, "embed_sections": 0, **unembedded}
    return report | {"refine": send_unrefined_skills(services)}


def _list_lost_queries(services: Services) -> list[str]:
    """Return the open queries if they outnumber the query tasks that run or wait; else none.

    Under load queries wait for a worker, and a second task for each would make others wait longer.
    """
    queries = services.journal.list_open_jobs("query")
    return queries if len(queries) > services.coordinator.count_pending(QUERY.name) else []


@contextmanager
def _in_trace_of(services: Services, job_id: str) -> Iterator[None]:
    """Bind the trace id of a recorded job for log lines and messages in the block.

    With traces, the block continues the trace of the job.
    """
    trace_id, context = job_id, tracing.NO_CONTEXT
    if tracing.is_tracing():
        with suppress(PermanentError):  # the job has ended since, or was written by another version
            event = services.journal.get_job(job_id).event
            trace_id, context = trace_of(event), get_trace_context(event)
    with bound_contextvars(trace_id=trace_id), tracing.resume(context):
        yield


def _resend_ingest(services: Services, waiting: Sequence[CatalogEntry]) -> None:
    """Send skills to ingest, each batch with the trace id of its first request."""
    requests = services.coordinator.get_ingest_requests(
        sorted({entry.requested_seq for entry in waiting})
    )
    for batch in batches(waiting, _BATCH_SKILLS):
        ids = [entry.skill_id for entry in batch]
        found = [one for entry in batch if (one := requests.get(entry.requested_seq)) is not None]
        known = list(dict.fromkeys(one.trace_id for one in found))
        with (
            bound_contextvars(**({"trace_id": known[0]} if known else {})),
            tracing.resume(found[0].context if found else tracing.NO_CONTEXT),
        ):
            send_ingest(services, ids)
            log.info("pending tasks sent again", sent=INGEST.name, ids=ids, also_traces=known[1:])


def delete_orphans(services: Services, orphans: Sequence[RevisionKey]) -> int:
    """Delete the orphans that no ingest task can still publish; returns how many.

    A superseded revision is kept for `workers.keep_seconds`, so that a query that chose it can read
    it. Revisions of skills that are not in the catalog are kept, since it may be a wrong or old
    catalog.
    """
    entries = services.graph.get_entries(sorted({key.skill_id for key in orphans}))
    before = time.time() - services.settings.workers.keep_seconds
    settled = {
        entry.skill_id: entry.seq
        for entry in entries
        if not entry.awaits_ingest and entry.updated <= before
    }
    due = [key for key in orphans if settled.get(key.skill_id, key.seq) != key.seq]
    if due:
        keep_orphans(services, due, {one.skill_id: one.content_hash for one in entries})
        services.index.delete(due)
        log.info("orphaned revisions deleted", revisions=len(due))
    return len(due)
