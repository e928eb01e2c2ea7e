"""Review store of the distributed deployment: one document per skill, in an index of its own.

Documents are read and written by id, so that reads see writes at once. Every change of a record
that policy reads is followed by a write of one more document, whose sequence number is the version
of the store. The index has one shard, so that a server carries out the writes of a request in their
order.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from typing import Any

from typing_extensions import override

from config.errors import MisconfiguredError, PermanentError, TransientError
from config.server_settings import ServerSettings
from search.elastic.connection import ElasticsearchConnection
from search.elastic.merging import merge_away_deleted
from search.elastic.revision_history import skill_document_id
from search.review_store import ReviewStore
from skills.batches import batches
from skills.review import POLICY_KINDS, ReviewKind, ReviewRecord, Reviews, ReviewSlot

_VERSION_ID = "version"
_BATCH = 64
_PAGE = 500
_ATTEMPTS = 8
_PAUSE_SECONDS = 0.05
_CONFLICT = 409
_MISSING = 404

_Records = dict[ReviewSlot, ReviewRecord]
_Change = Callable[[_Records], _Records]


class ElasticsearchReviewStore(ReviewStore):
    """A `ReviewStore` on a server, for any number of processes. The first write creates the index.

    Raises MisconfiguredError for an index of that name that skillbus did not make.
    """

    def __init__(self, servers: ServerSettings) -> None:
        self._servers = servers
        self._index = f"{servers.elasticsearch_prefix}-review"
        self._write_alias = f"{self._index}-write"
        # Set for each document, since deletions name the index.
        self._write_target = {"_index": self._write_alias, "require_alias": True}
        # The first write creates the index; a missing index counts as empty.
        self._if_there: dict[str, Any] = {"index": self._index, "ignore_unavailable": True}
        self._connection = ElasticsearchConnection(servers)
        self._lock = threading.Lock()
        self._ready = False

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
        """Change the documents of skills; retries documents that another process wrote
        meanwhile."""
        if changes:
            self._ensure()
        for batch in batches(sorted(changes), _BATCH):
            left = {skill_id: changes[skill_id] for skill_id in batch}
            for _ in range(_ATTEMPTS):
                left = self._update_once(left)
                if not left:
                    break
                time.sleep(_PAUSE_SECONDS)
            else:
                raise TransientError(
                    f"{self._connection.address}: the reviews of {min(left)} are being written by "
                    "others"
                )

    def _update_once(self, changes: Mapping[str, _Change]) -> dict[str, _Change]:
        """Write the documents that change; returns the changes that conflicted with another
        write."""
        known = self._read_documents(list(changes))
        lines: list[Any] = []
        written: list[str] = []
        of_policy = False
        for skill_id, change in changes.items():
            document, version = known.get(skill_id, ({}, {}))
            stored = _read_records(document)
            changed = change(stored)
            if changed == stored:
                continue
            target = {"_id": skill_document_id(skill_id), **version}
            if changed:
                action = "index" if version else "create"
                lines += [{action: target | self._write_target}, _to_document(changed)]
            else:
                lines.append({"delete": target | {"_index": self._index}})
            written.append(skill_id)
            of_policy |= _select_for_policy(stored) != _select_for_policy(changed)
        if not written:
            return {}
        if of_policy:
            lines.append({"index": {"_id": _VERSION_ID} | self._write_target})
            lines.append({"change": time.time_ns()})
            written.append(_VERSION_ID)
        with self._connection.translate_errors() as client:
            answer = client.bulk(operations=lines)
        conflicts = {}
        for skill_id, item in zip(written, answer["items"], strict=True):
            result = next(iter(item.values()))
            if result["status"] == _CONFLICT and skill_id in changes:
                conflicts[skill_id] = changes[skill_id]
            elif result["status"] >= 300:
                raise self._connection.to_error(result["status"], result.get("error"))
        return conflicts

    def _ensure(self) -> None:
        """Create the index if it is missing; once per process."""
        with self._lock:
            if self._ready:
                return
            path = files("search.elastic").joinpath("mappings", "review.json")
            body = json.loads(path.read_text(encoding="utf-8"))
            body["settings"]["index"] |= {
                "number_of_shards": 1,
                "number_of_replicas": self._servers.elasticsearch_replicas,
            }
            with self._connection.translate_errors() as client:
                client.options(ignore_status=400).indices.create(
                    index=self._index, aliases={self._write_alias: {}}, **body
                )
                found = client.indices.get_mapping(index=self._index)
            (mapping,) = (one["mappings"] for one in found.values())
            if mapping.get("_meta") != body["mappings"]["_meta"]:
                raise MisconfiguredError(
                    f"{self._connection.address}: {self._index} was not made by this version of "
                    "skillbus; choose another servers.elasticsearch_prefix"
                )
            self._ready = True

    @override
    def overwrite_deleted(self) -> None:
        merge_away_deleted(self._connection, self._if_there)

    # -- reading

    @override
    def get_version(self) -> int:
        known = self._read_by_id([_VERSION_ID], source=False)
        return int(known[_VERSION_ID]["_seq_no"]) + 1 if known else 0

    @override
    def get(self, skill_ids: Sequence[str]) -> Reviews:
        version, found = self.get_version(), []
        for batch in batches(sorted(set(skill_ids)), _BATCH):
            found += [document for document, _ in self._read_documents(batch).values()]
        return Reviews(version, _by_skill(found))

    @override
    def get_all(self) -> Reviews:
        return Reviews(self.get_version(), _by_skill(self._read_pages()))

    def _read_documents(
        self, skill_ids: Sequence[str]
    ) -> dict[str, tuple[dict[str, Any], dict[str, int]]]:
        """Return the documents of skills with their versions; sees writes at once."""
        found = self._read_by_id([skill_document_id(one) for one in skill_ids])
        return {
            skill_id: (
                one["_source"],
                {"if_seq_no": one["_seq_no"], "if_primary_term": one["_primary_term"]},
            )
            for skill_id in skill_ids
            if (one := found.get(skill_document_id(skill_id))) is not None
        }

    def _read_by_id(self, ids: Sequence[str], *, source: bool = True) -> dict[str, dict[str, Any]]:
        found = {}
        for one in self._connection.mget(self._index, ids, source=source):
            if "error" not in one:
                if one["found"]:
                    found[one["_id"]] = one
            elif one["error"].get("type") == "index_not_found_exception":
                self._ready = False
            else:
                raise self._connection.to_error(_MISSING, one["error"])
        return found

    def _read_pages(self) -> Iterator[dict[str, Any]]:
        """Yield all documents with records, by skill_id."""
        after: list[Any] = []
        while True:
            with self._connection.translate_errors() as client:
                if not after:
                    client.indices.refresh(**self._if_there)
                answer = client.search(
                    **self._if_there,
                    size=_PAGE,
                    query={"term": {"has_records": True}},
                    sort=["skill_id"],
                    search_after=after or None,
                )
            hits = answer["hits"]["hits"]
            if not hits:
                return
            yield from (hit["_source"] for hit in hits)
            after = hits[-1]["sort"]

    @override
    def close(self) -> None:
        self._connection.close()


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


def _to_document(records: _Records) -> dict[str, Any]:
    (skill_id,) = {one.skill_id for one in records.values()}
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
