"""Tracker of publication: the replies to an event once all skills it concerns are settled.

A skill waits for ingest while its `wanted_seq` is above its `seq`. An ingest allocates its sequence
number before it reads the folder. So an ingest with a number above `barrier_seq`, which is taken
after the event was carried out, has read the state that the event reported, regardless of later
requests. A skill is settled once it no longer waits or has reached the barrier: at most one ingest
more than the event requested, even if the skill changes all the time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from config.backoff import Backoff
from graph.protocol import Catalog
from graph.records import CatalogEntry, SkillState
from skills.bundle.model import Revision
from skills.events import (
    Event,
    Reply,
    SkillFailed,
    SkillPublished,
    SkillRemoved,
    SkillUpserted,
    SourceChanged,
)
from tasks.ingest.diff import make_skill_id
from workers.queue.recorder import AFTER_SEQ

MAX_ANSWERS = 1_000
"""Maximum number of replies to one event."""

_MIN_RECHECK_SECONDS, _MAX_RECHECK_SECONDS = 0.04, 2.0
_RECHECK_FACTOR = 10
"""A check is repeated after at least this many times its own duration."""
_MAX_PATHS = 20


@dataclass(slots=True)
class _PendingEvent:
    """An event with unsettled skills. Times are those of `time.monotonic`."""

    started_at: float
    barrier_seq: int
    next_check_at: float = 0.0
    backoff: Backoff = field(
        default_factory=lambda: Backoff(_MIN_RECHECK_SECONDS, _MAX_RECHECK_SECONDS)
    )


class PublicationTracker:
    """Checks the skills of events that were carried out until they are settled.

    timeout_seconds: time after which skills that still wait are reported as failed.
    """

    def __init__(self, graph: Catalog, timeout_seconds: float) -> None:
        self._graph = graph
        self._timeout_seconds = timeout_seconds
        self._pending: dict[str, _PendingEvent] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def seconds_until_due(self, max_seconds: float) -> float:
        """Return the seconds until the next check is due, at most `max_seconds`."""
        now = time.monotonic()
        return max(
            0.0, min([max_seconds, *(one.next_check_at - now for one in self._pending.values())])
        )

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Stop tracking all other events, as those that another process has answered."""
        self._pending = {one: self._pending[one] for one in job_ids if one in self._pending}

    def is_due(self, job_id: str) -> bool:
        """Return whether an event is not tracked yet, or its next check is due."""
        pending = self._pending.get(job_id)
        return pending is None or time.monotonic() >= pending.next_check_at

    def get_answers(self, job_id: str, event: Event) -> list[Reply] | None:
        """Return the replies about an event's skills, at most `MAX_ANSWERS`.

        None while skills are unsettled. For a source: the skills
        published since the event was received, and the failed ones. A removed skill is reported
        only to an event that names it.
        """
        started = time.monotonic()
        waiting = self._pending.get(job_id)
        if waiting is None:
            barrier_seq = self._graph.last_sequence() + 1
            waiting = self._pending[job_id] = _PendingEvent(started, barrier_seq)
        entries = _list_affected(self._graph, event)
        unsettled = {
            one.skill_id for one in entries if one.awaits_ingest and one.seq < waiting.barrier_seq
        }
        now = time.monotonic()
        if unsettled and now - waiting.started_at < self._timeout_seconds:
            waiting.next_check_at = now + max(
                waiting.backoff.pause(), _RECHECK_FACTOR * (now - started)
            )
            return None
        return _build_answers(event, entries, unsettled)


def _list_affected(graph: Catalog, event: Event) -> list[CatalogEntry]:
    """Return the catalog entries of the skills that an event concerns."""
    content = event.parse_data()
    if isinstance(content, SkillUpserted | SkillRemoved):
        return graph.get_entries([content.skill_id])
    if not isinstance(content, SourceChanged):
        return []
    scopes = {_parse_folder(path) for path in content.paths}
    if not scopes or "" in scopes or len(scopes) > _MAX_PATHS:
        entries = graph.get_entries_under(content.source_id, "")
        return [one for one in entries if not scopes or _overlaps(one.path, scopes)]
    found = {
        one.skill_id: one
        for scope in scopes
        for one in graph.get_entries_under(content.source_id, scope)
    }
    above = [
        make_skill_id(content.source_id, one) for scope in scopes for one in _parent_paths(scope)
    ]
    found |= {one.skill_id: one for one in graph.get_entries(above)}
    return list(found.values())


def _parse_folder(path: str) -> str:
    """Return the folder that a path of an event names."""
    return path.removesuffix("SKILL.md").strip("/")


def _parent_paths(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(len(parts)))


def _overlaps(path: str, scopes: set[str]) -> bool:
    """Return whether a skill's folder equals, contains or lies in one of the scopes."""
    own = "" if path == "." else path
    return any(
        own == scope
        or not scope
        or not own
        or own.startswith(f"{scope}/")
        or scope.startswith(f"{own}/")
        for scope in scopes
    )


def _build_answers(
    event: Event, entries: Sequence[CatalogEntry], unsettled: set[str]
) -> list[Reply]:
    named = isinstance(event.parse_data(), SkillUpserted)
    after = int((event.model_extra or {}).get(AFTER_SEQ, 0))
    answers: list[Reply] = []
    for entry in entries:
        if entry.skill_id in unsettled:
            reason = "it still waits for ingest; query its state later"
            answers.append(SkillFailed(skill_id=entry.skill_id, reason=reason))
        elif entry.state is SkillState.FAILED:
            answers.append(SkillFailed(skill_id=entry.skill_id, reason=entry.reason))
        elif entry.state is SkillState.PUBLISHED and (named or entry.seq > after):
            answers.append(_build_published(entry))
        elif named and entry.state is SkillState.REMOVED:
            reason = "it was removed before it was published"
            answers.append(SkillFailed(skill_id=entry.skill_id, reason=reason))
    return answers[:MAX_ANSWERS]


def _build_published(entry: CatalogEntry) -> SkillPublished:
    return SkillPublished(
        skill_id=entry.skill_id,
        revision=Revision(seq=entry.seq, content_hash=entry.content_hash),
        name=entry.name,
        warnings=entry.warnings,
        safety_level=entry.safety_level,
    )
