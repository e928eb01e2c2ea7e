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

from graph.protocol import Entry, SkillGraph, State
from skills.bundle.model import Revision
from skills.events import (
    Answer,
    Event,
    SkillFailed,
    SkillPublished,
    SkillRemoved,
    SkillUpserted,
    SourceChanged,
)
from tasks.ingest.diff import skill_id_of
from tasks.ingest.ingest import is_waiting
from workers.queue.intake import AFTER_SEQ

MOST_ANSWERS = 1_000
"""Skills of one event that its sender is told of."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 2.0
_PATIENT = 10
"""A look that takes long is repeated after so many times as long."""
_MOST_PATHS = 20


@dataclass(slots=True)
class _Waiting:
    """An event whose skills are not settled: since when, below which seq, when to look again."""

    since: float
    mark: int
    pause: float = _FIRST_PAUSE_SECONDS
    again: float = field(default=0.0)


class Settling:
    """Events that were carried out and whose skills are looked at until they are settled.

    patience: seconds until skills that wait still are told as failed.
    """

    def __init__(self, graph: SkillGraph, patience: float) -> None:
        self._graph = graph
        self._patience = patience
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def due(self, longest: float) -> float:
        """Seconds until the next look, at most `longest`."""
        now = time.monotonic()
        return max(0.0, min([longest, *(one.again - now for one in self._waiting.values())]))

    def forget(self, job_id: str) -> None:
        """An event needs no more looks."""
        self._waiting.pop(job_id, None)

    def answers(self, job_id: str, event: Event) -> list[Answer] | None:
        """What became of the skills, None while some wait and it is not time to look or tell.

        At most `MOST_ANSWERS`. Of a source: those that were published since the event came, and
        those that failed. A skill that was withdrawn is told only to who sent it.
        """
        started = time.monotonic()
        waiting = self._waiting.get(job_id)
        if waiting is None:
            mark = self._graph.take_seqs(0).stop
            waiting = self._waiting[job_id] = _Waiting(started, mark)
        if started < waiting.again:
            return None
        entries = _concerned(self._graph, event)
        unsettled = {one.skill_id for one in entries if is_waiting(one) and one.seq < waiting.mark}
        now = time.monotonic()
        if unsettled and now - waiting.since < self._patience:
            waiting.pause = min(2 * waiting.pause, _LONGEST_PAUSE_SECONDS)
            waiting.again = now + max(waiting.pause, _PATIENT * (now - started))
            return None
        return _told(event, entries, unsettled)


def _concerned(graph: SkillGraph, event: Event) -> list[Entry]:
    """The skills that an event is about, as the catalog has them."""
    content = event.content()
    if isinstance(content, SkillUpserted | SkillRemoved):
        return graph.entries([content.skill_id])
    if not isinstance(content, SourceChanged):
        return []
    scopes = {_folder(path) for path in content.paths}
    if not scopes or "" in scopes or len(scopes) > _MOST_PATHS:
        entries = graph.entries_under(content.source_id, "")
        return [one for one in entries if not scopes or _touches(one.path, scopes)]
    found = {
        one.skill_id: one
        for scope in scopes
        for one in graph.entries_under(content.source_id, scope)
    }
    above = [skill_id_of(content.source_id, one) for scope in scopes for one in _above(scope)]
    found |= {one.skill_id: one for one in graph.entries(above)}
    return list(found.values())


def _folder(path: str) -> str:
    """The folder that a path of an event is about."""
    return path.removesuffix("SKILL.md").strip("/")


def _above(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(len(parts)))


def _touches(path: str, scopes: set[str]) -> bool:
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


def _told(event: Event, entries: Sequence[Entry], unsettled: set[str]) -> list[Answer]:
    named = isinstance(event.content(), SkillUpserted)
    after = int((event.model_extra or {}).get(AFTER_SEQ, 0))
    answers: list[Answer] = []
    for entry in entries:
        if entry.skill_id in unsettled:
            reason = "it still waits to be read; ask for its state later"
            answers.append(SkillFailed(skill_id=entry.skill_id, reason=reason))
        elif entry.state is State.FAILED:
            answers.append(SkillFailed(skill_id=entry.skill_id, reason=entry.reason))
        elif entry.state is State.PUBLISHED and (named or entry.seq > after):
            answers.append(_published(entry))
        elif named and entry.state is State.REMOVED:
            reason = "it was withdrawn before it was published"
            answers.append(SkillFailed(skill_id=entry.skill_id, reason=reason))
    return answers[:MOST_ANSWERS]


def _published(entry: Entry) -> SkillPublished:
    return SkillPublished(
        skill_id=entry.skill_id,
        revision=Revision(seq=entry.seq, content_hash=entry.content_hash),
        name=entry.name,
        warnings=entry.warnings,
        safety_level=entry.safety_level,
    )
