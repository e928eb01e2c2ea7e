"""Dead letters: what failed for good, sent again on an operator's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import structlog

from config.errors import MisconfiguredError, NotFoundError, UsageError
from graph.records import SkillState
from skills.events import SourceChanged, new_event
from tasks.journal.protocol import DeadLetter
from tasks.policies import EMBED_SECTIONS, FETCH, INGEST, PLAN, POLICIES, resolve_task_name
from tasks.send import send_task
from workers.backend.base import Backend

ORIGIN = "skillbus/dead"


def dead_letter_data(letter: DeadLetter) -> dict[str, Any]:
    """A letter as plain data; `retryable`: it names a task of this version."""
    is_known = resolve_task_name(letter.task) in POLICIES
    return asdict(letter) | {"ids": list(letter.ids), "retryable": is_known}


def retry_dead_letter(backend: Backend, letter_id: str) -> dict[str, Any]:
    """Send a letter's task again, then drop the letter; the letter as data.

    Raises NotFoundError when there is no such letter, UsageError when it cannot be sent again,
    TransientError when the broker is away: the letter stays then.
    """
    letter = backend.journal.get_dead_letter(letter_id)
    with structlog.contextvars.bound_contextvars(trace_id=letter.trace_id or letter.id):
        _send_again(backend, letter)
    backend.journal.delete_dead_letter(letter.id)
    return dead_letter_data(letter)


def _send_again(backend: Backend, letter: DeadLetter) -> None:
    task = resolve_task_name(letter.task)
    if task not in POLICIES:
        what = f"a task {letter.task!r} of another version" if letter.task else "no task"
        raise UsageError(
            f"dead letter {letter.id} is {what}, so it cannot be sent again: "
            f"`skillbus dead discard {letter.id}`"
        )
    if task == INGEST.name:
        _resubmit_skills(backend, letter)
        return
    if task in (PLAN.name, FETCH.name):
        _reopen(backend, letter)
    if task == EMBED_SECTIONS.name:
        backend.coordinator.add_embed_tasks(1)  # it counts itself out when it ends
    send_task(backend.app, task, letter.ids)


def _reopen(backend: Backend, letter: DeadLetter) -> None:
    """Have the events count as accepted again: a failed one would not be carried out."""
    gone = sorted(set(letter.ids) - backend.journal.get_job_states(letter.ids).keys())
    if gone:
        raise UsageError(
            f"dead letter {letter.id}: the event {gone[0]} has been forgotten "
            f"(workers.journal_days); sync its source, and `skillbus dead discard {letter.id}`"
        )
    backend.journal.reopen_jobs(letter.ids)


def _resubmit_skills(backend: Backend, letter: DeadLetter) -> None:
    """Have the folders of failed skills looked at again: the catalog counts them as served."""
    roots = {source.source_id: source.root for source in backend.graph.list_sources()}
    entries = backend.graph.get_entries(letter.ids)
    known = [
        one for one in entries if one.source_id in roots and one.state is not SkillState.REMOVED
    ]
    if not known:
        raise UsageError(
            f"dead letter {letter.id}: {', '.join(letter.ids)} is no skill of any source now: "
            f"`skillbus dead discard {letter.id}`"
        )
    for source_id in sorted({entry.source_id for entry in known}):
        paths = tuple(entry.path for entry in known if entry.source_id == source_id)
        changed = SourceChanged(source_id=source_id, root=roots[source_id], paths=paths)
        backend.accept(new_event(changed, ORIGIN, letter.trace_id))


def select_dead_letters(letters: Sequence[DeadLetter], ids: Sequence[str]) -> list[str]:
    """The ids of letters that are meant: all of them when none is named, oldest first."""
    if ids:
        return list(dict.fromkeys(ids))
    return [letter.id for letter in sorted(letters, key=lambda letter: letter.id)]


def retry_failure(letter_id: str, error: UsageError | MisconfiguredError) -> Mapping[str, str]:
    """Why a letter was left as it is, as data."""
    kind = "gone" if isinstance(error, NotFoundError) else "refused"
    return {"id": letter_id, "state": kind, "reason": str(error)}
