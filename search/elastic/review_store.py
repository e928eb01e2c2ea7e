"""Review store of the distributed deployment: one document per skill, in an index of its own.

Every change of a record that policy reads is followed by a write of one more document, whose
sequence number is the version of the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from typing_extensions import override

from config.errors import PermanentError
from config.server_settings import ServerSettings
from search.elastic.skill_documents import Documents, SkillDocuments
from search.review_store import ReviewStore
from skills.review import POLICY_KINDS, ReviewKind, ReviewRecord, Reviews, ReviewSlot

_VERSION_ID = "version"

_Records = dict[ReviewSlot, ReviewRecord]
_Change = Callable[[_Records], _Records]


class ElasticsearchReviewStore(ReviewStore):
    """A `ReviewStore` on a server, for any number of processes; see `SkillDocuments`."""

    def __init__(self, servers: ServerSettings) -> None:
        # One shard: the server carries out the writes of a request in their order.
        self._documents = SkillDocuments(servers, "review", "reviews", shards=1, batch=500)

    # -- writing

    @override
    def save(self, records: Sequence[ReviewRecord], *, only_new: bool = False) -> None:
        saved: dict[str, _Records] = {}
        for one in records:
            saved.setdefault(one.skill_id, {})[one.slot] = one
        self._update({skill_id: partial(_put, one, only_new) for skill_id, one in saved.items()})

    @override
    def remove(self, skill_id: str, slots: Sequence[ReviewSlot]) -> list[ReviewRecord]:
        removed: list[ReviewRecord] = []

        def change(stored: _Records) -> _Records:
            # An earlier attempt may have deleted them, although its answer was lost.
            removed[:] = [stored[slot] for slot in slots if slot in stored] or removed
            return {slot: one for slot, one in stored.items() if slot not in slots}

        self._update({skill_id: change})
        return removed

    @override
    def forget(self, skill_ids: Sequence[str]) -> None:
        self._update({skill_id: lambda _: {} for skill_id in skill_ids})

    def _update(self, changes: Mapping[str, _Change]) -> None:
        """Change the records of skills, and the version if policy reads one of them."""

        def change(documents: Documents) -> tuple[Documents, Documents]:
            changed, of_policy = {}, False
            for skill_id, document in documents.items():
                before = _read_records(document)
                after = changes[skill_id](before)
                if after != before:
                    changed[skill_id] = _to_document(skill_id, after)
                    of_policy |= _select_for_policy(before) != _select_for_policy(after)
            return changed, {_VERSION_ID: {"change": time.time_ns()}} if of_policy else {}

        self._documents.update(changes, change)

    @override
    def overwrite_deleted(self) -> None:
        self._documents.overwrite_deleted()

    # -- reading

    @override
    def get_version(self) -> int:
        known = self._documents.read_by_id([_VERSION_ID], source=False)
        return int(known[_VERSION_ID]["_seq_no"]) + 1 if known else 0

    @override
    def get(self, skill_ids: Sequence[str]) -> Reviews:
        version = self.get_version()
        documents = self._documents.read(sorted(skill_ids)).values()
        return Reviews(version, _by_skill(documents))

    @override
    def get_all(self) -> Reviews:
        version = self.get_version()
        documents = self._documents.read_pages({"term": {"has_records": True}})
        return Reviews(version, _by_skill(documents))

    @override
    def close(self) -> None:
        self._documents.close()


def _put(records: _Records, only_new: bool, stored: _Records) -> _Records:
    if not only_new:
        return stored | records
    return stored | {slot: one for slot, one in records.items() if _is_new(one, stored.get(slot))}


def _is_new(record: ReviewRecord, stored: ReviewRecord | None) -> bool:
    """Return whether `save` adds a record when it adds only new ones."""
    if stored is None:
        return True
    kinds = {record.kind, stored.kind}
    return kinds == {ReviewKind.WAITING} and record.seq > stored.seq


def _select_for_policy(records: _Records) -> _Records:
    return {slot: one for slot, one in records.items() if one.kind in POLICY_KINDS}


def _by_skill(documents: Iterable[Mapping[str, Any]]) -> dict[str, tuple[ReviewRecord, ...]]:
    found = {}
    for document in documents:
        records = _read_records(document)
        found[str(document["skill_id"])] = tuple(records[slot] for slot in sorted(records))
    return found


def _to_document(skill_id: str, records: _Records) -> dict[str, Any]:
    if not records:
        return {}
    return {
        "skill_id": skill_id,
        "has_records": True,
        "records": [asdict(records[slot]) for slot in sorted(records)],
    }


def _read_records(document: Mapping[str, Any]) -> _Records:
    try:
        records = [
            ReviewRecord(
                **{**one, "kind": ReviewKind(one["kind"]), "findings": tuple(one["findings"])}
            )
            for one in document.get("records", ())
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise PermanentError(f"the review store has a damaged document: {error}") from error
    return {one.slot: one for one in records}
