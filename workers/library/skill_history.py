"""What is known of a skill's past. Nothing keeps it for its own sake: it is read from what the
catalog, the journal and the deployment's activity remember anyway."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from graph.protocol import Entry, State
from workers.backend.channel import Channel

_LETTERS = 100


def history(channel: Channel, entry: Entry, *, letters: bool) -> list[dict[str, Any]]:
    """What is known of a skill's past, the latest last: `what`, `seq`, `at`, `reason` and `event`.

    `published`, `failed`, `removed`: the state it is in. `waiting`: a newer change is not served
    yet. `dead letter`, where `letters` are wanted: work on it failed for good. event: the id of
    the event or trace that led to it, where that is remembered.
    """
    told = list(_by_catalog(channel, entry))
    if letters:
        told += _dead_letters(channel, entry)
    return sorted(told, key=lambda one: one["at"] or "\uffff")


def _by_catalog(channel: Channel, entry: Entry) -> Iterator[dict[str, Any]]:
    if entry.state is not State.PENDING:
        yield _moment(entry.state.value, entry.updated, seq=entry.seq, reason=entry.reason)
    if entry.wanted_seq > entry.seq and entry.state in (State.PENDING, State.PUBLISHED):
        asked = channel.activity.requests([entry.wanted_seq]).get(entry.wanted_seq)
        since, trace_id = (asked.since, asked.trace_id) if asked else (0.0, "")
        yield _moment("waiting", since, seq=entry.wanted_seq, event=trace_id)


def _dead_letters(channel: Channel, entry: Entry) -> Iterator[dict[str, Any]]:
    for letter in channel.journal.letters(_LETTERS):
        if entry.skill_id in letter.ids:
            yield _moment("dead letter", letter.buried, reason=letter.reason, event=letter.trace_id)


def _moment(
    what: str, when: float, *, seq: int = 0, reason: str = "", event: str = ""
) -> dict[str, Any]:
    """when: seconds since the epoch, 0: not known."""
    return {
        "what": what,
        "seq": seq or None,
        "at": datetime.fromtimestamp(when, UTC).isoformat() if when else None,
        "reason": reason or None,
        "event": event or None,
    }
