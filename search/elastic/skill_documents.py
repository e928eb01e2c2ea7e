"""Documents of skills in an index of its own: one per skill, read and written by id.

Reads by id see writes at once, so that no call waits for a refresh. The version of a document
detects concurrent writers.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from config.errors import MisconfiguredError, TransientError
from config.server_settings import ServerSettings
from search.elastic.connection import ElasticsearchConnection
from search.elastic.merging import merge_away_deleted
from skills.batches import batches

BATCH = 64
"""Documents that are read or written at once."""

_ATTEMPTS = 8
_PAUSE_SECONDS = 0.05
_CONFLICT = 409
_MISSING = 404


class SkillDocuments:
    """The documents of one index, which belongs to no set of model and schema: a reindex leaves it.

    name: of the index behind the prefix of the settings, and of the file with its mappings.
    content: names the documents in messages. page: documents in an answer of `read_pages`. The
    first write creates the index, a missing index counts as empty. Raises MisconfiguredError for an
    index of that name that skillbus did not make.
    """

    def __init__(
        self, servers: ServerSettings, name: str, content: str, *, shards: int, page: int
    ) -> None:
        self._servers = servers
        self._name = name
        self._content = content
        self._shards = shards
        self._page = page
        self.index = f"{servers.elasticsearch_prefix}-{name}"
        self._write_alias = f"{self.index}-write"
        # Set for each document, since deletions name the index.
        self.write_target = {"_index": self._write_alias, "require_alias": True}
        self.if_exists: dict[str, Any] = {"index": self.index, "ignore_unavailable": True}
        self.connection = ElasticsearchConnection(servers)
        self._lock = threading.Lock()
        self._is_created = False

    def update(
        self, skill_ids: Iterable[str], write: Callable[[Sequence[str]], Sequence[str]]
    ) -> None:
        """Change the documents of skills, and again those that another process wrote meanwhile.

        write: reads, changes and writes the documents of some skills; returns those that conflicted
        with another write.
        """
        for batch in batches(sorted(skill_ids), BATCH):
            self._create_index()
            left: Sequence[str] = batch
            for _ in range(_ATTEMPTS):
                left = write(left)
                if not left:
                    break
                time.sleep(_PAUSE_SECONDS)
            else:
                raise TransientError(
                    f"{self.connection.address}: others are writing the {self._content} of "
                    f"{min(left)}"
                )

    def write(self, lines: Sequence[Any], written: Sequence[str]) -> list[str]:
        """Send the lines of a bulk request; return the skills that conflicted with another write.

        written: the skill of each document, in the order of the lines.
        """
        if not written:
            return []
        with self.connection.translate_errors() as client:
            answer = client.bulk(operations=lines)
        conflicts = []
        for skill_id, item in zip(written, answer["items"], strict=True):
            result = next(iter(item.values()))
            if result["status"] == _CONFLICT:
                conflicts.append(skill_id)
            elif result["status"] >= 300:
                raise self.connection.to_error(result["status"], result.get("error"))
        return conflicts

    def _create_index(self) -> None:
        """Create the index if it is missing; once per process."""
        with self._lock:
            if self._is_created:
                return
            path = files("search.elastic").joinpath("mappings", f"{self._name}.json")
            body = json.loads(path.read_text(encoding="utf-8"))
            body["settings"]["index"] |= {
                "number_of_shards": self._shards,
                "number_of_replicas": self._servers.elasticsearch_replicas,
            }
            with self.connection.translate_errors() as client:
                client.options(ignore_status=400).indices.create(
                    index=self.index, aliases={self._write_alias: {}}, **body
                )
                found = client.indices.get_mapping(index=self.index)
            (mapping,) = (one["mappings"] for one in found.values())
            if mapping.get("_meta") != body["mappings"]["_meta"]:
                raise MisconfiguredError(
                    f"{self.connection.address}: {self.index} was not made by this version of "
                    "skillbus; choose another servers.elasticsearch_prefix"
                )
            self._is_created = True

    def read(
        self, skill_ids: Sequence[str], fields: Sequence[str] | None = None
    ) -> dict[str, tuple[dict[str, Any], dict[str, int]]]:
        """Return the documents of skills with their versions; sees writes at once."""
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
        found = {}
        for one in self.connection.mget(self.index, ids, source=source, source_includes=fields):
            if "error" not in one:
                if one["found"]:
                    found[one["_id"]] = one
            elif one["error"].get("type") == "index_not_found_exception":
                self._is_created = False
            else:
                raise self.connection.to_error(_MISSING, one["error"])
        return found

    def read_pages(
        self, query: Mapping[str, Any], fields: Sequence[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the documents that match, by skill_id."""
        after: list[Any] = []
        while True:
            with self.connection.translate_errors() as client:
                if not after:
                    client.indices.refresh(**self.if_exists)
                answer = client.search(
                    **self.if_exists,
                    size=self._page,
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

    def overwrite_deleted(self) -> None:
        """Make deleted content unreadable."""
        merge_away_deleted(self.connection, self.if_exists)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def skill_document_id(skill_id: str) -> str:
    """Return the `_id` of a skill's document: a hash, as skill ids can be very long."""
    return blake2b(skill_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
