"""What became of the skills that an event concerns, once that is settled.

A skill waits for ingest while its `wanted_seq` is above its `seq`. An ingest takes its number
before it reads, so one whose `seq` is not below a number that was taken after the event was carried
out has read what the event told of, whatever was asked for since. A skill is settled once it waits
no longer or has such a `seq`: after at most one ingest more than the event asked for, even where
skills change all the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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
from tasks.ingest.ingest import needs_ingest
from workers.queue.recorder import AFTER_SEQ

MAX_ANSWERS = 1_000
"""Skills of one event that its sender is told of."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 2.0
_BACKOFF_FACTOR = 10
"""A look that takes long is repeated after so many times as long."""
_MAX_PATHS = 20


@dataclass(slots=True)
class _PendingEvent:
    """An event whose skills are not settled: since when, below which seq, when to look again."""

    started_at: float
    barrier_seq: int
    retry_seconds: float = _FIRST_PAUSE_SECONDS
    next_check_at: float = field(default=0.0)


class PublicationTracker:
    """Events that were carried out and whose skills are looked at until they are settled.

    patience: seconds until skills that wait still are told as failed.
    """

    def __init__(self, graph: Catalog, timeout_seconds: float) -> None:
        self._graph = graph
        self._timeout_seconds = timeout_seconds
        self._pending: dict[str, _PendingEvent] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def seconds_until_due(self, max_seconds: float) -> float:
        """Seconds until the next look, at most `longest`."""
        now = time.monotonic()
        return max(
            0.0, min([max_seconds, *(one.next_check_at - now for one in self._pending.values())])
        )

    def forget(self, job_id: str) -> None:
        """An event needs no more looks."""
        self._pending.pop(job_id, None)

    def get_answers(self, job_id: str, event: Event) -> list[Reply] | None:
        """What became of the skills, None while some wait and it is not time to look or tell.

        At most `MOST_ANSWERS`. Of a source: those that were published since the event came, and
        those that failed. A skill that was withdrawn is told only to who sent it.
        """
        started = time.monotonic()
        waiting = self._pending.get(job_id)
        if waiting is None:
            barrier_seq = self._graph.last_sequence() + 1
            waiting = self._pending[job_id] = _PendingEvent(started, barrier_seq)
        if started < waiting.next_check_at:
            return None
        entries = _list_affected(self._graph, event)
        unsettled = {
            one.skill_id for one in entries if needs_ingest(one) and one.seq < waiting.barrier_seq
        }
        now = time.monotonic()
        if unsettled and now - waiting.started_at < self._timeout_seconds:
            waiting.retry_seconds = min(2 * waiting.retry_seconds, _LONGEST_PAUSE_SECONDS)
            waiting.next_check_at = now + max(
                waiting.retry_seconds, _BACKOFF_FACTOR * (now - started)
            )
            return None
        return _build_answers(event, entries, unsettled)


def _list_affected(graph: Catalog, event: Event) -> list[CatalogEntry]:
    """The skills that an event is about, as the catalog has them."""
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
    """The folder that a path of an event is about."""
    return path.removesuffix("SKILL.md").strip("/")


def _parent_paths(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(len(parts)))


def _overlaps(path: str, scopes: set[str]) -> bool:
    """Whether a skill's folder is one of these, lies below one or above one."""
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
            reason = "it still waits to be read; ask for its state later"
            answers.append(SkillFailed(skill_id=entry.skill_id, reason=reason))
        elif entry.state is SkillState.FAILED:
            answers.append(SkillFailed(skill_id=entry.skill_id, reason=entry.reason))
        elif entry.state is SkillState.PUBLISHED and (named or entry.seq > after):
            answers.append(_build_published(entry))
        elif named and entry.state is SkillState.REMOVED:
            reason = "it was withdrawn before it was published"
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
