"""Dead letters as data, and the retry of their tasks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any, Protocol

import structlog

from config.errors import NotFoundError, UsageError
from graph.protocol import SkillGraph
from graph.records import SkillState
from skills.events import Event, SourceChanged, new_event
from tasks.coordination.protocol import Coordinator
from tasks.journal.protocol import DeadLetter, Journal
from tasks.policies import (
    EMBED_SECTIONS,
    EMBED_SKILLS,
    FETCH,
    INGEST,
    PLAN,
    POLICIES,
    RECORD_OUTCOMES,
    REFINE,
    resolve_task_name,
)
from tasks.send import send_task

ORIGIN = "skillbus/dead"


class RetryBackend(Protocol):
    """The part of a backend with stores that a retry uses."""

    graph: SkillGraph
    journal: Journal
    coordinator: Coordinator
    app: Any

    def accept(self, event: Event) -> str:
        """Accept an event and return its id."""
        ...


def dead_letter_data(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON data. retryable: whether it names a task of this version."""
    is_known = resolve_task_name(letter.task) in POLICIES
    return asdict(letter) | {
        "ids": list(letter.ids),
        "buried": letter.failed_at,  # the former name of `failed_at`; remove it after 0.2
        "retryable": is_known,
    }


def retry_dead_letter(backend: RetryBackend, letter_id: str) -> dict[str, Any]:
    """Send the task of a dead letter again and delete the letter; return it as JSON data.

    Raises NotFoundError for an unknown id, UsageError if the letter cannot be retried,
    TransientError if the broker does not answer; the letter is kept then.
    """
    letter = backend.journal.get_dead_letter(letter_id)
    with structlog.contextvars.bound_contextvars(trace_id=letter.trace_id or letter.id):
        _send_again(backend, letter)
    with suppress(NotFoundError):  # another process may have discarded it
        if backend.journal.get_dead_letter(letter.id) == letter:  # else the task has failed again
            backend.journal.delete_dead_letter(letter.id)
    return dead_letter_data(letter)


def _send_again(backend: RetryBackend, letter: DeadLetter) -> None:
    task = resolve_task_name(letter.task)
    if task not in POLICIES:
        what = (
            f"task {letter.task!r} is unknown to this version"
            if letter.task
            else "it is an unreadable message"
        )
        raise UsageError(
            f"dead letter {letter.id} cannot be retried: {what}; remove it with "
            f"`skillbus dead discard {letter.id}`"
        )
    if task == INGEST.name:
        _resubmit_skills(backend, letter)
        return
    if task in (PLAN.name, FETCH.name, RECORD_OUTCOMES.name):
        _reopen(backend, letter)
    if task in (EMBED_SKILLS.name, EMBED_SECTIONS.name, REFINE.name):
        backend.coordinator.add_pending(task, 1)  # the task subtracts itself when it ends
    send_task(backend.app, task, letter.ids)


def _reopen(backend: RetryBackend, letter: DeadLetter) -> None:
    """Reset failed events to accepted; a failed event would be skipped."""
    gone = sorted(set(letter.ids) - backend.journal.get_job_states(letter.ids).keys())
    if gone:
        raise UsageError(
            f"dead letter {letter.id}: event {gone[0]} has expired from the journal "
            "(workers.journal_days); send it again or sync its source, and discard the letter with "
            f"`skillbus dead discard {letter.id}`"
        )
    backend.journal.reopen_jobs(letter.ids)


def _resubmit_skills(backend: RetryBackend, letter: DeadLetter) -> None:
    """Submit the folders of failed skills again: the catalog counts their requests as served."""
    roots = {source.source_id: source.root for source in backend.graph.list_sources()}
    entries = backend.graph.get_entries(letter.ids)
    known = [
        one for one in entries if one.source_id in roots and one.state is not SkillState.REMOVED
    ]
    if not known:
        raise UsageError(
            f"dead letter {letter.id}: none of {', '.join(letter.ids)} belongs to a source now; "
            f"discard it with `skillbus dead discard {letter.id}`"
        )
    for source_id in sorted({entry.source_id for entry in known}):
        paths = tuple(entry.path for entry in known if entry.source_id == source_id)
        changed = SourceChanged(source_id=source_id, root=roots[source_id], paths=paths)
        backend.accept(new_event(changed, ORIGIN, letter.trace_id))
