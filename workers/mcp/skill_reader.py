"""Reading the skills of a library: what the catalog names, at its published revision."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from config.errors import NotFoundError, PermanentError, TransientError
from config.settings import Settings
from graph.entry_filter import Selection
from graph.protocol import Entry, SkillGraph, State
from search.protocol import SearchIndex, StoredRevision
from skills.bundle.framing import inline
from skills.policy import Policy
from skills.record import RevisionKey
from tasks.query.policy_filter import marked, policy_of
from tasks.sources.readers import file_of
from workers.mcp.schemas import LONGEST_ID

_READ_AGAIN = 3
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


class Volume(NamedTuple):
    """A skill at its published revision. path: where its SKILL.md lies, as bundles name it."""

    revision: StoredRevision
    path: str


class Shelf:
    """Opens the stores for reading when somebody reads; threads may share it.

    A skill is looked up in the catalog by its whole id and read from the index: no part of an id
    ever becomes a path.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._stores: tuple[SkillGraph, SearchIndex] | None = None

    def _open(self) -> tuple[SkillGraph, SearchIndex]:
        with self._lock:
            if self._stores is None:
                from workers.backend.stores import (  # slow, and not needed to start
                    open_graph,
                    open_index,
                )

                with ExitStack() as opening:
                    graph = open_graph(self._settings, opening, writable=False)
                    index = open_index(self._settings, opening, writable=False)
                    self._stack = opening.pop_all()
                self._stores = graph, index
            return self._stores

    def take(self, skill_id: str) -> Volume:
        """A skill by its id.

        Raises NotFoundError when the catalog has none, UsageError when there is no library,
        PermanentError when the skill could not be read, TransientError when it is not there yet.
        """
        _check_id(skill_id)
        graph, index = self._open()
        for _ in range(_READ_AGAIN):
            entry = _published(graph.entries([skill_id]), skill_id)
            key = RevisionKey(skill_id, entry.seq)
            # A revision that is superseded meanwhile is swept; then the next one is published.
            if (stored := index.read([key]).get(key)) is not None:
                revision, sources = marked(stored), graph.sources()
                _check(revision, policy_of(self._settings.policy, sources))
                return Volume(revision, file_of(sources, skill_id))
        raise TransientError(f"{skill_id} is being replaced; try again")

    def after(self, skill_id: str, count: int) -> list[Entry]:
        """The next published skills by id that may be sent.

        Raises UsageError when there is no library, NotFoundError for what can be no id.
        """
        _check_id(skill_id or "any")
        graph, _ = self._open()
        policy = policy_of(self._settings.policy, graph.sources())
        found: list[Entry] = []
        while len(found) < count:
            page = graph.page(Selection(state=State.PUBLISHED), skill_id, count)
            found += (entry for entry in page if _may_be_sent(entry, policy))
            if len(page) < count:
                break
            skill_id = page[-1].skill_id
        return found[:count]

    def close(self) -> None:
        """Release the stores."""
        with self._lock:
            self._stores = None
            self._stack.close()


def _check(revision: StoredRevision, policy: Policy) -> None:
    """Raise PermanentError for a skill that the policy keeps back, as bundles do."""
    refusal = policy.of_record(revision.key.skill_id, revision.parsed.record)
    if refusal is not None:
        raise PermanentError(
            f"{revision.key.skill_id} is withheld by policy: {inline(refusal.reason)}; "
            "go on without it"
        )


def _may_be_sent(entry: Entry, policy: Policy) -> bool:
    return policy.refusal(entry.source_id, entry.safety_level, entry.licence) is None


def _check_id(skill_id: str) -> None:
    if not 0 < len(skill_id) <= LONGEST_ID or _NO_TEXT.search(skill_id):
        raise NotFoundError("that is no id of a skill; take one from a bundle of find_skills")


def _published(entries: Sequence[Entry], skill_id: str) -> Entry:
    entry = next(iter(entries), None)
    if entry is None or entry.state is State.REMOVED:
        raise NotFoundError(
            f"no skill {skill_id!r}; take the id from a bundle of find_skills, as it stands there"
        )
    if entry.state is State.PENDING:
        raise TransientError(f"{skill_id} is not indexed yet; try again in a moment")
    if entry.state is State.FAILED:
        raise PermanentError(f"{skill_id} could not be read: {entry.reason}")
    return entry
