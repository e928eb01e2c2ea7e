"""History of the distributed deployment: one document per skill, in an index of its own.

The index belongs to no set of model and schema, so a reindex leaves it as it is. All revisions of a
skill are in one document that is read and written by id, so that no call waits for a refresh. The
version of the document detects concurrent writers.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from typing_extensions import override

from config.errors import MisconfiguredError, PermanentError, TransientError
from config.server_settings import ServerSettings
from search.elastic.connection import ElasticsearchConnection
from search.elastic.document_codec import decode_blob, encode_blob
from search.elastic.merging import merge_away_deleted
from search.revision_history import (
    HistoryLimits,
    KeptRevision,
    Pin,
    RevisionHistory,
    RevisionSize,
    select_kept,
)
from skills import record_codec
from skills.batches import batches
from skills.record import RevisionKey

_BATCH = 64
_PAGE = 100
_ATTEMPTS = 8
_PAUSE_SECONDS = 0.05
_CONFLICT = 409

_Revisions = dict[int, dict[str, Any]]
"""Stored revisions of a skill by seq."""

_Stored = tuple[_Revisions, Pin | None]
"""Content of the document of a skill."""

_Change = Callable[[_Stored], _Stored]


class ElasticsearchRevisionHistory(RevisionHistory):
    """A `RevisionHistory` on a server, for any number of processes. The first write creates its
    index.

    Raises MisconfiguredError for an index of that name that skillbus did not make.
    """

    def __init__(self, servers: ServerSettings, limits: HistoryLimits) -> None:
        self._limits = limits
        self._servers = servers
        self._index = f"{servers.elasticsearch_prefix}-history"
        self._write_alias = f"{self._index}-write"
        # The first write creates the index; a missing index counts as empty.
        self._if_there: dict[str, Any] = {"index": self._index, "ignore_unavailable": True}
        self._connection = ElasticsearchConnection(servers)
        self._lock = threading.Lock()
        self._ready = False

    # -- writing

    @override
    def keep(self, revisions: Sequence[KeptRevision]) -> None:
        added: dict[str, _Revisions] = {}
        for one in revisions:
            added.setdefault(one.key.skill_id, {})[one.key.seq] = _to_stored(one)
        if added:
            self._ensure()
        changes = {skill_id: partial(self._add, one) for skill_id, one in sorted(added.items())}
        for batch in batches(changes, _BATCH):
            self._update({skill_id: changes[skill_id] for skill_id in batch})

    @override
    def hold(self, revision: KeptRevision, above: int) -> int:
        skill_id, seq = revision.key
        held = seq

        def change(stored: _Stored) -> _Stored:
            nonlocal held
            newest = max(stored[0], default=0)
            is_same = newest > 0 and stored[0][newest]["content_hash"] == revision.content_hash
            held = newest if is_same and newest > above else seq
            return stored if held != seq else self._add({seq: _to_stored(revision)}, stored)

        self._ensure()
        self._update({skill_id: change})
        return held

    def _add(self, added: _Revisions, stored: _Stored) -> _Stored:
        revisions, pin = stored
        return self._prune(added | revisions, pin), pin

    @override
    def set_pin(self, pin: Pin) -> bool:
        known = False

        def change(stored: _Stored) -> _Stored:
            nonlocal known
            known = pin.seq in stored[0]
            return (stored[0], pin) if known else stored

        self._ensure()
        self._update({pin.skill_id: change})
        return known

    @override
    def remove_pin(self, skill_id: str) -> bool:
        known = False

        def change(stored: _Stored) -> _Stored:
            nonlocal known
            # An earlier attempt may have removed it, although its answer was lost.
            known = known or stored[1] is not None
            return self._prune(stored[0], None), None

        self._ensure()
        self._update({skill_id: change})
        return known

    def _ensure(self) -> None:
        """Create the index if it is missing; once per process."""
        with self._lock:
            if self._ready:
                return
            path = files("search.elastic").joinpath("mappings", "history.json")
            body = json.loads(path.read_text(encoding="utf-8"))
            body["settings"]["index"] |= {
                "number_of_shards": self._servers.elasticsearch_shards,
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

    def _update(self, changes: Mapping[str, _Change]) -> None:
        """Change the documents of skills; retries documents that another process wrote
        meanwhile."""
        left = dict(changes)
        for _ in range(_ATTEMPTS):
            left = self._update_once(left)
            if not left:
                return
            time.sleep(_PAUSE_SECONDS)
        raise TransientError(
            f"{self._connection.address}: the history of {min(left)} is being written by others"
        )

    def _update_once(self, changes: Mapping[str, _Change]) -> dict[str, _Change]:
        """Write the documents that change; returns the changes that conflicted with another
        write."""
        known = self._read_documents(list(changes))
        lines: list[Any] = []
        written = []
        for skill_id, change in changes.items():
            document, version = known.get(skill_id, ({}, {}))
            stored = (_read_revisions(document), _read_pin(document))
            changed = change(stored)
            if changed == stored:
                continue
            action = "index" if version else "create"
            target = {"_index": self._write_alias, "_id": skill_document_id(skill_id), **version}
            lines += [{action: target}, _to_document(skill_id, *changed)]
            written.append(skill_id)
        if not written:
            return {}
        with self._connection.translate_errors() as client:
            answer = client.bulk(operations=lines, require_alias=True)
        conflicts = {}
        for skill_id, item in zip(written, answer["items"], strict=True):
            result = next(iter(item.values()))
            if result["status"] == _CONFLICT:
                conflicts[skill_id] = changes[skill_id]
            elif result["status"] >= 300:
                raise self._connection.to_error(result["status"], result["error"])
        return conflicts

    def _prune(self, revisions: _Revisions, pin: Pin | None) -> _Revisions:
        sizes = [
            RevisionSize(seq, one["content_hash"], len(one["parsed"]) * 3 // 4)
            for seq, one in revisions.items()
        ]
        kept = select_kept(sizes, self._limits)
        if pin is not None and pin.seq in revisions:
            kept.add(pin.seq)
        return {seq: revisions[seq] for seq in sorted(kept)}

    @override
    def forget(self, skill_ids: Sequence[str]) -> int:
        count = 0
        for batch in batches(dict.fromkeys(skill_ids), _BATCH):
            known = self._read_documents(batch)
            if not known:
                continue
            count += sum(len(_read_revisions(document)) for document, _ in known.values())
            lines = [
                {"delete": {"_index": self._index, "_id": skill_document_id(skill_id)}}
                for skill_id in known
            ]
            with self._connection.translate_errors() as client:
                answer = client.bulk(operations=lines)
            for item in answer["items"]:
                if item["delete"]["status"] not in (200, 404):
                    raise self._connection.to_error(
                        item["delete"]["status"], item["delete"].get("error")
                    )
        return count

    @override
    def overwrite_deleted(self) -> None:
        merge_away_deleted(self._connection, self._if_there)

    # -- reading

    def _read_documents(
        self, skill_ids: Sequence[str], fields: Sequence[str] | None = None
    ) -> dict[str, tuple[dict[str, Any], dict[str, int]]]:
        """Return the documents of skills with their versions; sees writes at once."""
        ids = [skill_document_id(one) for one in skill_ids]
        documents = self._connection.mget(self._index, ids, source_includes=fields)
        found = {}
        for skill_id, one in zip(skill_ids, documents, strict=True):
            if "error" in one:
                if one["error"].get("type") == "index_not_found_exception":
                    self._ready = False
                    continue
                raise self._connection.to_error(404, one["error"])
            if one["found"]:
                version = {"if_seq_no": one["_seq_no"], "if_primary_term": one["_primary_term"]}
                found[skill_id] = (one["_source"], version)
        return found

    @override
    def find_kept(self, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        found: set[RevisionKey] = set()
        for batch in batches(sorted({key.skill_id for key in keys}), _BATCH):
            for skill_id, (document, _) in self._read_documents(batch).items():
                found |= {RevisionKey(skill_id, seq) for seq in _read_revisions(document)}
        return found & set(keys)

    @override
    def list_revisions(self, skill_id: str) -> list[KeptRevision]:
        known = self._read_documents([skill_id])
        return _to_kept(known[skill_id][0])[::-1] if skill_id in known else []

    @override
    def get_pins(self, skill_ids: Sequence[str] | None = None) -> dict[str, Pin]:
        if skill_ids is None:
            documents = list(self._read_pages({"term": {"pinned": True}}, ["pin"]))
        else:
            documents = [
                document
                for batch in batches(dict.fromkeys(skill_ids), _BATCH)
                for document, _ in self._read_documents(batch, ["pin"]).values()
            ]
        pins = (_read_pin(document) for document in documents)
        return {pin.skill_id: pin for pin in pins if pin is not None}

    @override
    def read_all(self) -> Iterator[KeptRevision]:
        for document in self._read_pages({"match_all": {}}, None):
            yield from _to_kept(document)

    def _read_pages(
        self, query: Mapping[str, Any], fields: Sequence[str] | None
    ) -> Iterator[dict[str, Any]]:
        """Yield the documents that match, by skill_id."""
        after: list[Any] = []
        while True:
            with self._connection.translate_errors() as client:
                if not after:
                    client.indices.refresh(**self._if_there)
                answer = client.search(
                    **self._if_there,
                    size=_PAGE,
                    query=query,
                    sort=["skill_id"],
                    search_after=after or None,
                    source_includes=fields,
                )
            hits = answer["hits"]["hits"]
            if not hits:
                return
            yield from (hit["_source"] for hit in hits)
            after = hits[-1]["sort"]

    @override
    def max_seq(self) -> int:
        with self._connection.translate_errors() as client:
            client.indices.refresh(**self._if_there)
            answer = client.search(
                **self._if_there, size=0, aggregations={"seq": {"max": {"field": "max_seq"}}}
            )
        found = answer.get("aggregations", {}).get("seq", {})
        return int(found.get("value") or 0)

    @override
    def close(self) -> None:
        self._connection.close()


def skill_document_id(skill_id: str) -> str:
    """Return the `_id` of a skill's document: a hash, as skill ids can be very long."""
    return blake2b(skill_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _to_stored(one: KeptRevision) -> dict[str, Any]:
    return {
        "content_hash": one.content_hash,
        "published": one.published,
        "parsed": encode_blob(record_codec.dump(one.parsed)),
    }


def _to_document(skill_id: str, revisions: _Revisions, pin: Pin | None) -> dict[str, Any]:
    document = {
        "skill_id": skill_id,
        "max_seq": max(revisions, default=0),
        "revisions": {str(seq): one for seq, one in revisions.items()},
    }
    return document if pin is None else document | {"pinned": True, "pin": asdict(pin)}


def _read_pin(document: Mapping[str, Any]) -> Pin | None:
    return Pin(**document["pin"]) if document.get("pin") else None


def _read_revisions(document: Mapping[str, Any]) -> _Revisions:
    return {int(seq): dict(one) for seq, one in document.get("revisions", {}).items()}


def _to_kept(document: Mapping[str, Any]) -> list[KeptRevision]:
    """Return the revisions of a document, oldest first."""
    try:
        return [
            KeptRevision(
                RevisionKey(document["skill_id"], seq),
                one["content_hash"],
                record_codec.load(decode_blob(one["parsed"])),
                one["published"],
            )
            for seq, one in sorted(_read_revisions(document).items())
        ]
    except KeyError as error:
        raise PermanentError(f"the history has a damaged document: {error} is missing") from error
