"""Documents of skills in an index of its own: one per skill, read and written by id.

Reads by id see writes at once, so that no call waits for a refresh. The version of a document
detects concurrent writers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from config.errors import MisconfiguredError, TransientError
from config.server_settings import ServerSettings
from search.elastic.connection import ElasticsearchConnection, MissingIndexError
from search.elastic.document_reader import find_max
from search.elastic.index_sets import load_definition
from search.elastic.merging import merge_away_deleted
from skills.batches import batches

_ATTEMPTS = 8
_PAUSE_SECONDS = 0.05
_CONFLICT = 409

Documents = Mapping[str, dict[str, Any]]
_Stored = tuple[dict[str, Any], dict[str, int]]
"""A document, and the parameters of a write that fails if another process has written it."""

_NONE: _Stored = ({}, {})

DocumentChange = Callable[[Documents], tuple[Documents, Documents]]
"""Takes the stored documents of skills, empty ones for skills without a document. Returns those
that change, empty ones to delete them, and other documents to write after them, by `_id`."""


class SkillDocuments:
    """The documents of one index, which belongs to no set of model and schema: a reindex leaves it.

    name: of the index behind the prefix of the settings, and of the file with its mappings.
    content: names the documents in messages. batch: documents that are read or written at once. The
    first write creates the index, a missing index counts as empty. Raises MisconfiguredError for an
    index of that name that skillbus did not make.
    """

    def __init__(
        self, servers: ServerSettings, name: str, content: str, *, shards: int, batch: int
    ) -> None:
        self._servers = servers
        self._name = name
        self._content = content
        self._shards = shards
        self._batch = batch
        self._index = f"{servers.elasticsearch_prefix}-{name}"
        self._write_alias = f"{self._index}-write"
        self.connection = ElasticsearchConnection(servers)
        self._lock = threading.Lock()
        self._is_created = False

    def update(self, skill_ids: Iterable[str], change: DocumentChange) -> None:
        """Change the documents of skills, and again those that another process wrote meanwhile."""
        for batch in batches(sorted(skill_ids), self._batch):
            self._create_index()
            left: Sequence[str] = batch
            for _ in range(_ATTEMPTS):
                known = self._read_stored(left)
                changed, others = change({one: known.get(one, _NONE)[0] for one in left})
                left = self._write(known, changed, others)
                if not left:
                    break
                time.sleep(_PAUSE_SECONDS)
            else:
                raise TransientError(
                    f"{self.connection.address}: others are writing the {self._content} of "
                    f"{min(left)}"
                )

    def _write(
        self, known: Mapping[str, _Stored], changed: Documents, others: Documents
    ) -> list[str]:
        """Write documents in one request; return the skills that conflicted with another write."""
        target = {"_index": self._write_alias, "require_alias": True}
        lines: list[Any] = []
        for skill_id, document in changed.items():
            version = known.get(skill_id, _NONE)[1]
            named = {"_id": skill_document_id(skill_id), **version}
            if document:
                lines += [{"index" if version else "create": named | target}, document]
            else:
                lines.append({"delete": named | {"_index": self._index}})
        for name, document in others.items():
            lines += [{"index": {"_id": name} | target}, document]
        if not lines:
            return []
        with self.connection.translate_errors() as client:
            answer = client.bulk(operations=lines)
        conflicts = []
        for name, item in zip([*changed, *others], answer["items"], strict=True):
            result = next(iter(item.values()))
            if result["status"] == _CONFLICT:
                conflicts.append(name)
            elif result["status"] >= 300:
                raise self.connection.to_error(result["status"], result.get("error"))
        return conflicts

    def _create_index(self) -> None:
        """Create the index if it is missing; once per process."""
        with self._lock:
            if self._is_created:
                return
            replicas = self._servers.elasticsearch_replicas
            body = load_definition(self._name, self._shards, replicas)
            self.connection.create_index(self._index, aliases={self._write_alias: {}}, **body)
            with self.connection.translate_errors() as client:
                found = client.indices.get_mapping(index=self._index)
            (mapping,) = (one["mappings"] for one in found.values())
            if mapping.get("_meta") != body["mappings"]["_meta"]:
                raise MisconfiguredError(
                    f"{self.connection.address}: {self._index} was not made by this version of "
                    "skillbus; choose another servers.elasticsearch_prefix"
                )
            self._is_created = True

    def read(
        self, skill_ids: Iterable[str], fields: Sequence[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return the documents of skills; sees writes at once."""
        found: dict[str, dict[str, Any]] = {}
        for batch in batches(dict.fromkeys(skill_ids), self._batch):
            found |= {name: one for name, (one, _) in self._read_stored(batch, fields).items()}
        return found

    def _read_stored(
        self, skill_ids: Sequence[str], fields: Sequence[str] | None = None
    ) -> dict[str, _Stored]:
        found = self.read_by_id([skill_document_id(one) for one in skill_ids], fields=fields)
        return {
            skill_id: (
                one["_source"],
                {"if_seq_no": one["_seq_no"], "if_primary_term": one["_primary_term"]},
            )
            for skill_id in skill_ids
            if (one := found.get(skill_document_id(skill_id))) is not None
        }

    def read_by_id(
        self, ids: Sequence[str], *, source: bool = True, fields: Sequence[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return the documents with these `_id`s, as the server answers; sees writes at once."""
        try:
            found = self.connection.mget(self._index, ids, source=source, source_includes=fields)
        except MissingIndexError:
            self._is_created = False
            return {}
        return {one["_id"]: one for one in found if one["found"]}

    def read_pages(
        self, query: Mapping[str, Any], fields: Sequence[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the documents that match, by skill_id."""
        if not self._refresh():
            return
        after: list[Any] | None = None
        while True:
            with self.connection.translate_errors() as client:
                answer = client.search(
                    index=self._index,
                    size=self._batch,
                    allow_partial_search_results=False,
                    query=query,
                    sort=["skill_id"],
                    search_after=after,
                    source_includes=fields,
                )
            hits = answer["hits"]["hits"]
            if not hits:
                return
            yield from (hit["_source"] for hit in hits)
            after = hits[-1]["sort"]

    def max_value(self, field: str) -> int:
        """Return the highest value of a field of any document, 0 without any."""
        if not self._refresh():
            return 0
        return find_max(self.connection, self._index, field)

    def overwrite_deleted(self) -> None:
        """Make deleted content unreadable."""
        if self._refresh():
            merge_away_deleted(self.connection, [self._index])

    def _refresh(self) -> bool:
        """Make searches see all writes; False if there is no index.

        Searches with `ignore_unavailable` would also take a closed index for an empty one.
        """
        with self.connection.translate_errors() as client:
            # An exception would be an error in the trace of a query before the first document.
            answer = client.options(ignore_status=404).indices.refresh(index=self._index)
        if "error" not in answer:
            return True
        error = self.connection.to_error(404, answer["error"])
        if isinstance(error, MissingIndexError):
            return False
        raise error

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def skill_document_id(skill_id: str) -> str:
    """Return the `_id` of a skill's document: a hash, as skill ids can be very long."""
    return blake2b(skill_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
