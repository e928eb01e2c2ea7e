"""An index of several shards on two nodes, one of which dies and comes back."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import pytest

from config.errors import TransientError
from config.server_settings import ServerSettings
from deploy.stack import Memory, Stack
from search.elastic import merging
from search.elastic.health import index_health
from search.elastic.index import ElasticsearchIndex
from search.protocol import (
    Filters,
    LexicalSearch,
    Search,
    SectionSearch,
    VectorSearch,
)
from search.scoring.record_source import MemoryRecords
from skills.events import QueryAsked, SourceChanged
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_skills
from tasks.query.process_state.published_library import PublishedLibrary
from tasks.query.process_state.revision_facts import RevisionFactCache
from tasks.services import Services
from tests.bench.fill import copy_index
from tests.support.program.program import wait_for
from tests.support.samples.documents import ENCODER, tiny_document
from tests.support.samples.library import TOPICS, Folder
from tests.support.samples.tiny import DIMENSION, TinyEncoder, settle, tiny_backend
from tests.support.servers.servers import or_left_out

MODEL, ANY, SKILLS = TinyEncoder.model, Filters(), 60
TASKS = sorted(TOPICS.values())[:5]
NODES = ("elasticsearch", "elasticsearch_2")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two nodes of this module's own."""
    memory = Memory(elasticsearch_heap="256m")
    with Stack(tmp_path_factory.mktemp("nodes"), memory=memory) as stack:
        with or_left_out():
            stack.start(["elasticsearch_2"])
        yield stack


def settings(stack: Stack, shards: int, replicas: int) -> ServerSettings:
    return ServerSettings(
        broker="redis://unused:1/0",
        neo4j="bolt://unused:1",
        elasticsearch=",".join(stack.server(name).url for name in NODES),
        elasticsearch_prefix=f"shards{shards}",
        elasticsearch_shards=shards,
        elasticsearch_replicas=replicas,
    )


@dataclass
class Library:
    """A library with an index in Elasticsearch, as a process that answers queries has it."""

    servers: ServerSettings
    index: ElasticsearchIndex
    services: Services

    def rank(self, task: str) -> list[tuple[str, float]]:
        """Skills with their scores."""
        context = QueryContext.create(self.services, QueryAsked(task=task), degrade=False)
        return [(hit.key.skill_id, hit.score) for hit in rank_skills(context).hits]

    def status(self) -> str:
        """As of the index: green, yellow or red; unknown where there are problems."""
        health = index_health(self.servers, MODEL, DIMENSION)
        return "unknown" if health.problems else health.status

    def copies(self) -> int:
        """Documents of skills in all shards and replicas."""
        name = self.index.ensure().index_name("skills")
        with self.index._connection.translate_errors() as client:
            client.indices.refresh(index=name)
            stats = client.indices.stats(index=name, metric="docs")
        return int(stats["_all"]["total"]["docs"]["count"])


def open_library(services: Services, servers: ServerSettings) -> Library:
    """The library of other services, its index copied to Elasticsearch."""
    index = ElasticsearchIndex(servers, MODEL, DIMENSION, writable=True, caching=False)
    assert copy_index(services.index, index, MODEL) == SKILLS
    return Library(
        servers,
        index,
        replace(
            services,
            index=index,
            library=PublishedLibrary(services.graph, MemoryRecords(index)),
            fact_cache=RevisionFactCache(),
        ),
    )


@pytest.fixture(scope="module")
def libraries(
    stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Library, Library]]:
    """One library in one shard, and in three that both nodes hold."""
    base = tmp_path_factory.mktemp("library")
    Folder(base / "crafts", seed=11, size=SKILLS)
    with tiny_backend(base / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(base / "crafts")), "tests")
        settle(backend)
        one = open_library(backend.services, settings(stack, shards=1, replicas=0))
        three = open_library(backend.services, settings(stack, shards=3, replicas=1))
        wait_for(lambda: three.status() == "green")
        yield one, three
        one.index.close()
        three.index.close()


def test_three_shards_answer_as_one(libraries: tuple[Library, Library]) -> None:
    one, three = (library.index for library in libraries)
    keys = sorted(three.list_keys())
    assert keys == sorted(one.list_keys())
    assert three.complete_keys(keys) == set(keys)
    assert three.partial_keys() == []
    assert three.max_seq() == one.max_seq()
    parsed = [
        {key: found.parsed for key, found in index.get_revisions(keys).items()}
        for index in (one, three)
    ]
    assert parsed[0] == parsed[1]
    assert len(parsed[0]) == SKILLS
    for task in TASKS:
        expected = one.search_many(searches(task, SKILLS))
        for found, wanted in zip(three.search_many(searches(task, SKILLS)), expected, strict=True):
            scores = {hit.key: hit.score for hit in wanted}
            assert {hit.key: hit.score for hit in found} == pytest.approx(scores)
        best = three.search_many(searches(task, 5))
        for found, wanted in zip(best, expected, strict=True):  # of equal ones, any
            assert len({hit.key for hit in found}) == 5
            assert [hit.score for hit in found] == pytest.approx([hit.score for hit in wanted[:5]])
        rankings = [library.rank(task) for library in libraries]
        assert rankings[0] == rankings[1]


def searches(task: str, limit: int) -> list[Search]:
    """Every kind of search that a query makes."""
    (vector,) = ENCODER.encode_queries([task])
    return [
        LexicalSearch(dict.fromkeys(task.lower().split(), 1.0), limit, ANY),
        VectorSearch(vector, 0, limit, ANY),
        VectorSearch(vector, 1, limit, Filters(source=("crafts",))),
        SectionSearch(vector, limit, ANY),
    ]


class Asking:
    """A thread that asks one query after another."""

    def __init__(self, library: Library, expected: Mapping[str, list[tuple[str, float]]]) -> None:
        self.answers = 0
        self.wrong: list[object] = []
        self.failures: list[TransientError] = []
        self._library = library
        self._expected = expected
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._stopping.set()
        self._thread.join()

    def wait_for_answers(self) -> None:
        """Until some more queries, the next one included, were answered."""
        before = self.answers
        wait_for(lambda: self.answers > before + 5)

    def _ask(self) -> None:
        for task in itertools.cycle(self._expected):
            if self._stopping.is_set():
                return
            try:
                found = self._library.rank(task)
            except TransientError as error:
                self.failures.append(error)
                continue
            self.answers += 1
            if found != self._expected[task]:
                self.wrong.append((task, found))


def test_a_node_that_dies_costs_no_answer_and_no_document(
    libraries: tuple[Library, Library], stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, three = libraries
    monkeypatch.setattr(merging, "_LEASE_SECONDS", 0.0)
    node = stack.server("elasticsearch_2")
    alone = ElasticsearchIndex(
        three.servers.model_copy(update={"elasticsearch": node.url}),
        MODEL,
        DIMENSION,
        writable=False,
    )
    late = [tiny_document(f"late-{number}") for number in range(9)]
    keys = {document.key for document in late}
    with Asking(three, {task: one.rank(task) for task in TASKS}) as asking:
        asking.wait_for_answers()
        node.kill()
        asking.wait_for_answers()
        wait_for(lambda: three.status() == "yellow")
        with pytest.raises(TransientError, match="cannot be reached"):
            alone.list_keys()
        for document in late:
            three.index.add([document])
        with pytest.raises(TransientError, match=r"nodes are down \(1\)"):
            three.index.overwrite_deleted()
        asking.wait_for_answers()
        node.start_again()
        wait_for(lambda: three.status() == "green", 120)
        asking.wait_for_answers()
    assert not asking.wrong
    assert not asking.failures
    assert keys <= set(three.index.list_keys())
    assert three.copies() == 2 * (SKILLS + len(late))
    assert set(alone.get_forward_records(sorted(keys))) == keys
    alone.close()
