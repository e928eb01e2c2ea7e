"""Refetch git sources periodically, for hosts that send no webhooks."""

from __future__ import annotations

import hashlib
import time

from config.settings import Settings
from graph.records import Source
from skills.events import SourceChanged, new_event
from tasks.ingest.next_tasks import send_fetch
from tasks.services import Services

ORIGIN = "skillbus/poll"
_MIN_INTERVAL_SECONDS = 15.0
_JITTER = 0.1
_PREFIX_DIGITS = 16


def next_fetch_time(source: Source, settings: Settings) -> float:
    """Return when to fetch a git source next, in seconds since the epoch.

    The interval varies by up to a tenth, differently for each source and time, so that many
    sources are not fetched at once. After failures it begins at 15 s and grows with the time
    since the last success.
    """
    wait = source.poll_seconds or settings.git.poll_seconds
    if source.last_error and source.last_success:
        failing = source.last_attempt - source.last_success
        wait = min(wait, max(_MIN_INTERVAL_SECONDS, failing))
    salt = f"{source.source_id}|{source.last_attempt}".encode()
    share = int.from_bytes(hashlib.blake2b(salt, digest_size=4).digest()) / 2**32
    return max(source.last_attempt, source.last_success) + wait * (1 + _JITTER * (2 * share - 1))


def poll_sources(services: Services) -> int:
    """Request fetches of all git sources that are due; returns how many.

    A source whose last requested fetch has not ended yet is skipped, so that requests do not pile
    up while fetches are slow or no worker fetches.
    """
    now, settings = time.time(), services.settings
    due = {
        source: (source.poll_seconds or settings.git.poll_seconds)
        if _is_ahead(source, now)
        else _MIN_INTERVAL_SECONDS
        for source in services.graph.list_sources()
        if source.kind == "git"
        and (next_fetch_time(source, settings) <= now or _is_ahead(source, now))
    }
    if not due:
        return 0
    requested: list[str] = []
    waiting = {event_id[:_PREFIX_DIGITS] for event_id in services.journal.list_open_jobs("event")}
    for source, seconds in due.items():
        prefix = _event_id_prefix(source.source_id)
        if prefix in waiting or not services.coordinator.claim_if_due(
            f"fetch {source.source_id}", seconds
        ):
            continue
        event = new_event(SourceChanged(source_id=source.source_id), ORIGIN)
        event = event.model_copy(update={"id": prefix + event.id[_PREFIX_DIGITS:]})
        services.journal.add_job(event, "event")
        requested.append(event.id)
    if requested:  # one fetch handles all open events
        send_fetch(services, requested[:1])
    return len(requested)


def _is_ahead(source: Source, now: float) -> bool:
    """Return whether the last fetch was by a clock ahead of this one, or of before it was set back.

    The time of the next fetch then means nothing, so the coordinator keeps the interval.
    """
    return max(source.last_attempt, source.last_success) > now


def _event_id_prefix(source_id: str) -> str:
    """Return the digits with which the ids of the source's requested fetches begin."""
    return hashlib.blake2b(source_id.encode(), digest_size=_PREFIX_DIGITS // 2).hexdigest()
