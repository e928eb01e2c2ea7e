"""Reading the skills of a library: what the catalog names, at its published revision."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from config.errors import NotFoundError, PermanentError, TransientError
from config.settings import Settings
from graph.protocol import Catalog
from graph.records import CatalogEntry, EntryFilter, SkillState
from search.protocol import SearchIndex, StoredRevision
from skills.bundle.escaping import escape_inline
from skills.record import RevisionKey
from skills.skill_policy import SkillPolicy
from tasks.query.policy_filter import make_policy, rescan_revision
from tasks.sources.readers import get_skill_location
from workers.mcp.schemas import MAX_ID_LENGTH

_MAX_ATTEMPTS = 3
_INVALID_TEXT = re.compile("[\0\ud800-\udfff]")


class PublishedSkill(NamedTuple):
    """A skill at its published revision. path: where its SKILL.md lies, as bundles name it."""

    revision: StoredRevision
    path: str


class SkillReader:
    """Opens the stores for reading when somebody reads; threads may share it.

    A skill is looked up in the catalog by its whole id and read from the index: no part of an id
    ever becomes a path.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._stores: tuple[Catalog, SearchIndex] | None = None

    def _open(self) -> tuple[Catalog, SearchIndex]:
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

    def read_skill(self, skill_id: str) -> PublishedSkill:
        """A skill by its id.

        Raises NotFoundError when the catalog has none, UsageError when there is no library,
        PermanentError when the skill could not be read, TransientError when it is not there yet.
        """
        _check_id(skill_id)
        graph, index = self._open()
        for _ in range(_MAX_ATTEMPTS):
            entry = _get_published(graph.get_entries([skill_id]), skill_id)
            key = RevisionKey(skill_id, entry.seq)
            # A revision that is superseded meanwhile is swept; then the next one is published.
            if (stored := index.get_revisions([key]).get(key)) is not None:
                revision, sources = rescan_revision(stored), graph.list_sources()
                _check_policy(revision, make_policy(self._settings.policy, sources))
                return PublishedSkill(revision, get_skill_location(sources, skill_id))
        raise TransientError(f"{skill_id} is being replaced; try again")

    def list_published(self, skill_id: str, count: int) -> list[CatalogEntry]:
        """The next published skills by id that may be sent.

        Raises UsageError when there is no library, NotFoundError for what can be no id.
        """
        _check_id(skill_id or "any")
        graph, _ = self._open()
        policy = make_policy(self._settings.policy, graph.list_sources())
        found: list[CatalogEntry] = []
        while len(found) < count:
            page = graph.list_entries(EntryFilter(state=SkillState.PUBLISHED), skill_id, count)
            found += (entry for entry in page if _is_allowed(entry, policy))
            if len(page) < count:
                break
            skill_id = page[-1].skill_id
        return found[:count]

    def close(self) -> None:
        """Release the stores."""
        with self._lock:
            self._stores = None
            self._stack.close()


def _check_policy(revision: StoredRevision, policy: SkillPolicy) -> None:
    """Raise PermanentError for a skill that the policy keeps back, as bundles do."""
    violation = policy.find_record_violation(revision.key.skill_id, revision.parsed.record)
    if violation is not None:
        raise PermanentError(
            f"{revision.key.skill_id} is withheld by policy: {escape_inline(violation.reason)}; "
            "go on without it"
        )


def _is_allowed(entry: CatalogEntry, policy: SkillPolicy) -> bool:
    return policy.find_violation(entry.source_id, entry.safety_level, entry.licence) is None


def _check_id(skill_id: str) -> None:
    if not 0 < len(skill_id) <= MAX_ID_LENGTH or _INVALID_TEXT.search(skill_id):
        raise NotFoundError("that is no id of a skill; take one from a bundle of find_skills")


def _get_published(entries: Sequence[CatalogEntry], skill_id: str) -> CatalogEntry:
    entry = next(iter(entries), None)
    if entry is None or entry.state is SkillState.REMOVED:
        raise NotFoundError(
            f"no skill {skill_id!r}; take the id from a bundle of find_skills, as it stands there"
        )
    if entry.state is SkillState.PENDING:
        raise TransientError(f"{skill_id} is not indexed yet; try again in a moment")
    if entry.state is SkillState.FAILED:
        raise PermanentError(f"{skill_id} could not be read: {entry.reason}")
    return entry
