"""Reading from indices: several searches at once, documents by key, and every key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from config.errors import SkillbusError
from search.elastic.candidate_search import MAX_HITS
from search.elastic.connection import ElasticsearchConnection
from search.elastic.document_codec import decode_key, document_id
from skills.record import RevisionKey

T = TypeVar("T")

READ_BATCH = 250
"""Documents read by key in one request."""

_READERS = 2
_KEEP_ALIVE = "1m"


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Items in parts of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


class DocumentReader:
    """What is asked of a connection, with plain data as answers."""

    def __init__(self, connection: ElasticsearchConnection) -> None:
        self._connection = connection

    def search(
        self, searches: Sequence[tuple[str, dict[str, Any]]], wanted: Sequence[str]
    ) -> list[Mapping[str, Any]]:
        """The answers to (index, body) pairs, cut to the wanted paths."""
        if not searches:
            return []
        lines: list[dict[str, Any]] = []
        for index, body in searches:
            lines += [{"index": index, "allow_partial_search_results": False}, body]
        paths = [f"responses.{path}" for path in ("status", "error", *wanted)]
        with self._connection.translate_errors() as client:
            answers: list[Mapping[str, Any]] = client.msearch(searches=lines, filter_path=paths)[
                "responses"
            ]
        for answer in answers:
            if "error" in answer:
                raise self._connection.to_error(int(answer["status"]), answer["error"])
        return answers

    def documents(
        self, index: str, keys: Sequence[RevisionKey], fields: Sequence[str]
    ) -> Iterator[tuple[RevisionKey, Mapping[str, Any]]]:
        """(key, stored fields) of the documents that are there, in pages, two at a time."""
        pages = list(batches(keys, READ_BATCH))
        if len(pages) == 1:
            yield from self._page(index, pages[0], fields)
        elif pages:
            with ThreadPoolExecutor(_READERS, thread_name_prefix="skillbus-read") as readers:
                for found in readers.map(lambda page: self._page(index, page, fields), pages):
                    yield from found

    def _page(
        self, index: str, keys: Sequence[RevisionKey], fields: Sequence[str]
    ) -> list[tuple[RevisionKey, Mapping[str, Any]]]:
        with self._connection.translate_errors() as client:
            answer = client.mget(
                index=index,
                ids=[document_id(key) for key in keys],
                filter_path=[
                    "docs._id",
                    "docs.error",
                    *(f"docs._source.{name}" for name in fields),
                ],
            )
        found = []
        for key, one in zip(keys, answer["docs"], strict=True):
            if "error" in one:
                raise self._connection.to_error(404, one["error"])
            if "_source" in one:
                found.append((key, one["_source"]))
        return found

    def exists(self, index: str, key: RevisionKey) -> bool:
        """Whether a document is there, as last written."""
        return key in self.existing_keys(index, [key])

    def existing_keys(self, index: str, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        """Those of which a document is there, as last written."""
        found = set()
        for page in batches(keys, READ_BATCH):
            with self._connection.translate_errors() as client:
                ids = [document_id(key) for key in page]
                answer = client.mget(index=index, ids=ids, source=False)
            for key, one in zip(page, answer["docs"], strict=True):
                if "error" in one:
                    raise self._connection.to_error(404, one["error"])
                if one["found"]:
                    found.add(key)
        return found

    def count(self, index: str) -> int:
        """Documents in an index."""
        with self._connection.translate_errors() as client:
            return int(client.count(index=index)["count"])

    def max_seq(self, index: str) -> int:
        """The highest seq in an index as it is now; 0 where it is empty."""
        with self._connection.translate_errors() as client:
            client.indices.refresh(index=index)
            answer = client.search(
                index=index,
                size=0,
                aggs={"newest": {"max": {"field": "seq"}}},
                filter_path=["aggregations.newest.value"],
            )
        return int(answer["aggregations"]["newest"]["value"] or 0)

    def keys(self, index: str) -> Iterator[RevisionKey]:
        """The keys in an index as it is now, in pages."""
        with self._connection.translate_errors() as client:
            context = client.open_point_in_time(index=index, keep_alive=_KEEP_ALIVE)["id"]
        after: list[Any] | None = None
        try:
            while True:
                with self._connection.translate_errors() as client:
                    answer = client.search(
                        pit={"id": context, "keep_alive": _KEEP_ALIVE},
                        size=MAX_HITS,
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
            # the server forgets it by itself after a while
            with suppress(SkillbusError), self._connection.translate_errors() as client:
                client.close_point_in_time(id=context)


def hit_fields(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The doc values of an answer's hits."""
    return [hit["fields"] for hit in answer.get("hits", {}).get("hits", ())]


def hit_sources(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The stored fields of an answer's hits."""
    return [hit["_source"] for hit in answer.get("hits", {}).get("hits", ())]
