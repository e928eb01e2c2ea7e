"""History of the distributed deployment: one document per skill, in an index of its own.

All revisions of a skill are in one document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from typing_extensions import override

from config.errors import PermanentError
from config.server_settings import ServerSettings
from search.elastic.document_codec import decode_blob, encode_blob
from search.elastic.skill_documents import Documents, SkillDocuments
from search.revision_history import (
    HistoryLimits,
    KeptRevision,
    Pin,
    RevisionHistory,
    RevisionSize,
    select_kept,
)
from skills import record_codec
from skills.record import RevisionKey

_BATCH = 16
"""Documents that are read or written at once: each may have `history.bytes` and a third more, and a
server refuses requests of more than 100 MB."""

_Revisions = dict[int, dict[str, Any]]
"""Stored revisions of a skill by seq."""

_Stored = tuple[_Revisions, Pin | None]
"""Content of the document of a skill."""

_Change = Callable[[_Stored], _Stored]


class ElasticsearchRevisionHistory(RevisionHistory):
    """A `RevisionHistory` on a server, for any number of processes; see `SkillDocuments`."""

    def __init__(self, servers: ServerSettings, limits: HistoryLimits) -> None:
        self._limits = limits
        self._documents = SkillDocuments(
            servers, "history", "history", shards=servers.elasticsearch_shards, batch=_BATCH
        )

    # -- writing

    @override
    def keep(self, revisions: Sequence[KeptRevision]) -> None:
        added: dict[str, _Revisions] = {}
        for one in revisions:
            added.setdefault(one.key.skill_id, {})[one.key.seq] = _to_stored(one)
        self._update({skill_id: partial(self._add, one) for skill_id, one in added.items()})

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

        self._update({skill_id: change})
        return known

    def _update(self, changes: Mapping[str, _Change]) -> None:
        """Change the stored revisions and pins of skills."""

        def change(documents: Documents) -> tuple[Documents, Documents]:
            changed = {}
            for skill_id, document in documents.items():
                before = (_read_revisions(document), _read_pin(document))
                after = changes[skill_id](before)
                if after != before:
                    changed[skill_id] = _to_document(skill_id, *after)
            return changed, {}

        self._documents.update(changes, change)

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
        counts: dict[str, int] = {}

        def forget(skill_id: str, stored: _Stored) -> _Stored:
            # An earlier attempt may have deleted them, although its answer was lost.
            counts[skill_id] = len(stored[0]) or counts.get(skill_id, 0)
            return {}, None

        self._update({skill_id: partial(forget, skill_id) for skill_id in skill_ids})
        return sum(counts.values())

    @override
    def overwrite_deleted(self) -> None:
        self._documents.overwrite_deleted()

    # -- reading

    @override
    def find_kept(self, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        documents = self._documents.read([key.skill_id for key in keys], ["revisions.*.published"])
        return {key for key in keys if key.seq in _read_revisions(documents.get(key.skill_id, {}))}

    @override
    def list_revisions(self, skill_id: str) -> list[KeptRevision]:
        documents = self._documents.read([skill_id])
        return [one for document in documents.values() for one in _to_kept(document)[::-1]]

    @override
    def get_pins(self, skill_ids: Sequence[str] | None = None) -> dict[str, Pin]:
        documents: Iterable[Mapping[str, Any]]
        if skill_ids is None:
            documents = self._documents.read_pages({"term": {"pinned": True}}, ["pin"])
        else:
            documents = self._documents.read(skill_ids, ["pin"]).values()
        pins = (_read_pin(document) for document in documents)
        return {pin.skill_id: pin for pin in pins if pin is not None}

    @override
    def read_all(self) -> Iterator[KeptRevision]:
        for document in self._documents.read_pages({"match_all": {}}):
            yield from _to_kept(document)

    @override
    def max_seq(self) -> int:
        return self._documents.max_value("max_seq")

    @override
    def close(self) -> None:
        self._documents.close()


def _to_stored(one: KeptRevision) -> dict[str, Any]:
    return {
        "content_hash": one.content_hash,
        "published": one.published,
        "parsed": encode_blob(record_codec.dump(one.parsed)),
    }


def _to_document(skill_id: str, revisions: _Revisions, pin: Pin | None) -> dict[str, Any]:
    if not revisions and pin is None:
        return {}
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
