"""The history of a skill, from catalog, journal and coordinator."""

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
    """Return the history of a skill, latest last: rows of `what`, `seq`,
    `at`, `reason` and `event`.

    what: `published`, `failed`, `removed` or `held` for its state; `waiting` for a change that is
    not ingested yet; with `include_dead_letters`, `dead letter` for a task that failed permanently.
    event: id of the event or trace that caused the row, None if it is unknown.
    """
    entries = list(_catalog_entries(backend, entry))
    if include_dead_letters:
        entries += _dead_letter_entries(backend, entry)
    return sorted(entries, key=lambda one: one["at"] or "\uffff")


def _catalog_entries(backend: StoreBackend, entry: CatalogEntry) -> Iterator[dict[str, Any]]:
    if entry.state is not SkillState.PENDING:
        yield _history_entry(entry.state.value, entry.updated, seq=entry.seq, reason=entry.reason)
    if entry.awaits_ingest and entry.state in (SkillState.PENDING, SkillState.PUBLISHED):
        request = backend.coordinator.get_ingest_requests([entry.requested_seq]).get(
            entry.requested_seq
        )
        since, trace_id = (request.since, request.trace_id) if request else (0.0, "")
        yield _history_entry("waiting", since, seq=entry.requested_seq, event=trace_id)


def _dead_letter_entries(backend: StoreBackend, entry: CatalogEntry) -> Iterator[dict[str, Any]]:
    for letter in backend.journal.list_dead_letters(_MAX_DEAD_LETTERS):
        if entry.skill_id in letter.ids:
            yield _history_entry(
                "dead letter", letter.failed_at, reason=letter.reason, event=letter.trace_id
            )


def _history_entry(
    what: str, when: float, *, seq: int = 0, reason: str = "", event: str = ""
) -> dict[str, Any]:
    """Return a row. when: seconds since the epoch, 0 if unknown."""
    return {
        "what": what,
        "seq": seq or None,
        "at": datetime.fromtimestamp(when, UTC).isoformat() if when else None,
        "reason": reason or None,
        "event": event or None,
    }
