"""What is known of a skill's past. Nothing keeps it for its own sake: it is read from what the
catalog, the journal and the deployment's activity remember anyway."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from graph.records import CatalogEntry, SkillState
from workers.backend.store_backend import StoreBackend

_MAX_DEAD_LETTERS = 100


def read_history(
    backend: StoreBackend, entry: CatalogEntry, *, include_dead_letters: bool
) -> list[dict[str, Any]]:
    """What is known of a skill's past, the latest last: `what`, `seq`, `at`, `reason` and `event`.

    `published`, `failed`, `removed`: the state it is in. `waiting`: a newer change is not served
    yet. `dead letter`, where `letters` are wanted: work on it failed for good. event: the id of
    the event or trace that led to it, where that is remembered.
    """
    entries = list(_catalog_entries(backend, entry))
    if include_dead_letters:
        entries += _dead_letter_entries(backend, entry)
    return sorted(entries, key=lambda one: one["at"] or "\uffff")


def _catalog_entries(backend: StoreBackend, entry: CatalogEntry) -> Iterator[dict[str, Any]]:
    if entry.state is not SkillState.PENDING:
        yield _history_entry(entry.state.value, entry.updated, seq=entry.seq, reason=entry.reason)
    if entry.requested_seq > entry.seq and entry.state in (
        SkillState.PENDING,
        SkillState.PUBLISHED,
    ):
        request = backend.coordinator.get_ingest_requests([entry.requested_seq]).get(
            entry.requested_seq
        )
        since, trace_id = (request.since, request.trace_id) if request else (0.0, "")
        yield _history_entry("waiting", since, seq=entry.requested_seq, event=trace_id)


def _dead_letter_entries(backend: StoreBackend, entry: CatalogEntry) -> Iterator[dict[str, Any]]:
    for letter in backend.journal.list_dead_letters(_MAX_DEAD_LETTERS):
        if entry.skill_id in letter.ids:
            yield _history_entry(
                "dead letter", letter.buried, reason=letter.reason, event=letter.trace_id
            )


def _history_entry(
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
