"""What commands wait for, and what they do not wait for: missing roots of other sources, and
embeddings that failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from config.errors import PermanentError, TransientError, UsageError
from config.settings import Settings
from config.tracing import untraced
from skills.events import SkillRemoved, SourceRemoved
from tasks.journal.protocol import MAX_DEAD_LETTERS, Journal
from tasks.policies import EMBED_SKILLS, TaskPolicy
from workers.backend.factory import open_backend
from workers.cli.common import ORIGIN, print_to_stderr

if TYPE_CHECKING:
    from graph.protocol import Catalog
    from workers.backend.protocol import Backend

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2
"""Seconds between two polls of an event, which grow meanwhile."""

_INGEST_PAUSE = 0.05
_FRESH_SECONDS = 1.0


def wait_for_event(
    backend: Backend,
    event_id: str,
    *,
    is_complete: Callable[[], bool] = lambda: True,
    on_poll: Callable[[], None] = lambda: None,
    find_problem: Callable[[], str] | None = None,
    stalled_hint: str = "accepted changes are kept and will be processed",
) -> dict[str, Any]:
    """Wait until an event is done and `is_complete` holds, and return the outcome of the event.

    What the work waits for is noted once. on_poll: called at each poll. find_problem: used instead
    of the backend's `get_problem`. Raises UsageError or PermanentError with the reason if the event
    failed, TransientError with the problem and `stalled_hint` if processing is stalled.
    """
    is_noted, pause = False, _FIRST_PAUSE
    while True:
        with untraced():
            status = backend.get_event_status(event_id)
            if status.state == "failed":
                kind = UsageError if status.outcome.get("usage") else PermanentError
                raise kind(status.reason)
            on_poll()
            if status.state == "done" and is_complete():
                return status.outcome
            if problem := (find_problem or backend.get_problem)():
                raise TransientError(f"{problem}; {stalled_hint}")
            if not is_noted and (reason := backend.get_wait_reason()):
                print_to_stderr(reason)
                is_noted = True
        time.sleep(pause)
        pause = min(1.2 * pause, _LONGEST_PAUSE)


def submit_and_wait(settings: Settings, data: SkillRemoved | SourceRemoved) -> dict[str, Any]:
    """Submit an event, wait until it is done and return its outcome.

    Raises PermanentError with the reason if it failed, TransientError if processing is stalled.
    """
    with open_backend(settings, writable=True, embeds="nothing") as backend:
        event_id = backend.submit(data, ORIGIN)
        outcome = wait_for_event(backend, event_id)
        backend.wait_until_linked()
        return outcome


def wait_until_ingested(backend: Backend, skill_ids: Sequence[str]) -> None:
    """Wait until the ingest that a pin or an approval requests is done.

    Raises TransientError if it is stalled.
    """
    backend.run_maintenance()
    while any(entry.awaits_ingest for entry in backend.graph.get_entries(skill_ids)):
        if problem := backend.get_problem():
            raise TransientError(
                f"{problem}; the decision is stored, and takes effect with the next run"
            )
        time.sleep(_INGEST_PAUSE)


class FailedEmbeddings:
    """Counts the published skills without vectors whose embedding failed permanently.

    stack: closes the journal, which is opened with the first count. A count is up to a second old.
    """

    def __init__(self, settings: Settings, graph: Catalog, stack: ExitStack) -> None:
        self._settings = settings
        self._graph = graph
        self._stack = stack
        self._journal: Journal | None = None
        self._counts: dict[str, tuple[float, int]] = {}

    def count(self, task: TaskPolicy) -> int:
        """Return the number of skills. task: EMBED_SKILLS or EMBED_SECTIONS."""
        read_at, count = self._counts.get(task.name, (-_FRESH_SECONDS, 0))
        if time.monotonic() - read_at >= _FRESH_SECONDS:
            count = self._read(task)
            self._counts[task.name] = time.monotonic(), count
        return count

    def _read(self, task: TaskPolicy) -> int:
        letters = self._open_journal().list_dead_letters(MAX_DEAD_LETTERS)
        failed = {one.ids[0]: one.failed_at for one in letters if one.task == task.name and one.ids}
        if not failed:
            return 0
        graph = self._graph
        most = graph.get_counts()["published"]
        if task == EMBED_SKILLS:
            keys = graph.list_awaiting_vectors(most)
        else:
            keys = graph.list_awaiting_embedding(most)
        awaiting = {key.skill_id for key in keys}
        entries = graph.get_entries(sorted(awaiting & failed.keys()))
        # A letter of an earlier revision says nothing about the present one.
        return sum(failed[entry.skill_id] >= entry.updated for entry in entries)

    def _open_journal(self) -> Journal:
        from workers.backend.stores import open_journal  # slow to import

        if self._journal is None:
            self._journal = open_journal(self._settings, self._stack, writable=True)
        return self._journal


class OtherRoots:
    """Leaves the other sources out of what a sync waits for, once the root of one is missing."""

    def __init__(self, backend: Backend, source_id: str) -> None:
        self._backend = backend
        self._source_id = source_id
        self._is_missing = False

    def find_problem(self) -> str:
        """Return why processing is stalled, "" if only the root of another source is missing, which
        is noted once."""
        from tasks.sources.directory import describe_missing_root  # slow to import

        problem = self._backend.get_problem()
        if not problem:
            return ""
        others = [
            describe_missing_root(one.root)
            for one in self._backend.graph.list_sources()
            if one.source_id != self._source_id
        ]
        if problem not in others:
            return problem
        if not self._is_missing:
            print_to_stderr(f"warning: {problem}")
        self._is_missing = True
        return ""

    def count_waiting(self, waiting: int) -> int:
        """Return how many skills wait for ingest. waiting: their number in the library."""
        if not waiting or not self._is_missing:
            return waiting
        entries = self._backend.graph.list_awaiting_ingest(waiting)
        return sum(entry.source_id == self._source_id for entry in entries)
