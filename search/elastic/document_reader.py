"""Reads from Elasticsearch: several searches in one request, documents by key, and all keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from config.errors import SkillbusError
from search.elastic.connection import ElasticsearchConnection
from search.elastic.document_codec import decode_key, document_id
from skills.batches import batches
from skills.record import RevisionKey

MAX_HITS = 10_000
"""Maximum hits of one answer of Elasticsearch (`index.max_result_window`)."""

READ_BATCH = 250
"""Documents read by key in one request."""

_READER_THREADS = 2
_KEEP_ALIVE = "1m"
_NODE_LOST = 502
"""Status of a search during which a node died; another node may hold the same shards."""


class DocumentReader:
    """Reads of one connection; answers are plain data, errors are translated."""

    def __init__(self, connection: ElasticsearchConnection) -> None:
        self._connection = connection

    def search_many(
        self,
        searches: Sequence[tuple[Sequence[str], dict[str, Any]]],
        wanted: Sequence[str],
        *,
        global_frequencies: bool = False,
    ) -> list[Mapping[str, Any]]:
        """Run (indices, body) searches in one request; the answers have only the wanted paths.

        Missing indices are ignored if a search names several. global_frequencies: score words by
        their frequencies in all shards, not in each.
        """
        if not searches:
            return []
        common: dict[str, Any] = {"allow_partial_search_results": False}
        if global_frequencies:
            common["search_type"] = "dfs_query_then_fetch"
        lines: list[dict[str, Any]] = []
        for indices, body in searches:
            header = {"index": list(indices), **common}
            lines += [header | ({"ignore_unavailable": True} if len(indices) > 1 else {}), body]
        paths = [f"responses.{path}" for path in ("status", "error", *wanted)]
        answers: list[Mapping[str, Any]] = []
        for _ in range(2):  # again if a node died meanwhile
            with self._connection.translate_errors() as client:
                answers = client.msearch(searches=lines, filter_path=paths)["responses"]
            if not any("error" in one and one["status"] == _NODE_LOST for one in answers):
                break
        for answer in answers:
            if "error" in answer:
                raise self._connection.to_error(int(answer["status"]), answer["error"])
        return answers

    def get_documents(
        self, index: str, keys: Sequence[RevisionKey], fields: Sequence[str]
    ) -> Iterator[tuple[RevisionKey, Mapping[str, Any]]]:
        """Yield (key, stored fields) of the existing documents; batches are read in parallel."""
        parts = list(batches(keys, READ_BATCH))
        if len(parts) == 1:
            yield from self._get_batch(index, parts[0], fields)
        elif parts:
            with ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="skillbus-read") as readers:
                # A context runs one function at a time, so each batch has a copy.
                running = [
                    readers.submit(copy_context().run, self._get_batch, index, part, fields)
                    for part in parts
                ]
                for found in running:
                    yield from found.result()

    def _get_batch(
        self, index: str, keys: Sequence[RevisionKey], fields: Sequence[str]
    ) -> list[tuple[RevisionKey, Mapping[str, Any]]]:
        documents = self._connection.mget(
            index,
            [document_id(key) for key in keys],
            filter_path=["docs._id", "docs.error", *(f"docs._source.{name}" for name in fields)],
        )
        found = []
        for key, one in zip(keys, documents, strict=True):
            if "_source" in one:
                found.append((key, one["_source"]))
        return found

    def existing_keys(self, index: str, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        """Return the keys that have a document; sees unrefreshed writes."""
        found: set[RevisionKey] = set()
        for part in batches(keys, READ_BATCH):
            ids = [document_id(key) for key in part]
            documents = self._connection.mget(index, ids, source=False)
            found |= {key for key, one in zip(part, documents, strict=True) if one["found"]}
        return found

    def count(self, index: str) -> int:
        """Return the number of documents in an index."""
        with self._connection.translate_errors() as client:
            return int(client.count(index=index)["count"])

    def max_seq(self, index: str) -> int:
        """Refresh an index and return its highest seq; 0 if it is empty."""
        with self._connection.translate_errors() as client:
            client.indices.refresh(index=index)
        return find_max(self._connection, index, "seq")

    def iterate_keys(self, index: str) -> Iterator[RevisionKey]:
        """Yield every key of an index, as of its last refresh, over a point in time."""
        with self._connection.translate_errors() as client:
            context = client.open_point_in_time(index=index, keep_alive=_KEEP_ALIVE)["id"]
        after: list[Any] | None = None
        try:
            while True:
                with self._connection.translate_errors() as client:
                    answer = client.search(
                        pit={"id": context, "keep_alive": _KEEP_ALIVE},
                        size=MAX_HITS,
                        allow_partial_search_results=False,
                        sort=[{"_shard_doc": {"order": "asc"}}],
                        search_after=after,
                        track_total_hits=False,
                        stored_fields="_none_",
                        docvalue_fields=[{"field": "skill_id"}, {"field": "seq"}],
                        filter_path=["hits.hits.fields", "hits.hits.sort"],
                    )
                found = answer.get("hits", {}).get("hits", [])
                yield from (decode_key(hit["fields"]) for hit in found)
                if len(found) < MAX_HITS:
                    return
                after = found[-1]["sort"]
        finally:
            # On failure it expires after _KEEP_ALIVE.
            with suppress(SkillbusError), self._connection.translate_errors() as client:
                client.close_point_in_time(id=context)


def find_max(connection: ElasticsearchConnection, index: str, field: str) -> int:
    """Return the highest value of a field in an index, as of its last refresh; 0 if it is empty."""
    with connection.translate_errors() as client:
        answer = client.search(
            index=index,
            size=0,
            allow_partial_search_results=False,
            aggs={"newest": {"max": {"field": field}}},
            filter_path=["aggregations.newest.value"],
        )
    return int(answer["aggregations"]["newest"]["value"] or 0)
