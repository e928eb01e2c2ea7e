"""Bundles while servers do not answer: what readers see, and what only the log says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from config.errors import TransientError
from search.scoring.record_source import MemoryRecords
from skills.bundle.model import Bundle
from skills.events import QueryAsked, SourceChanged
from tasks.policies import Deadline
from tasks.query.pipeline import answer_query
from tasks.query.process_state.circuit_breaker import CircuitBreakers
from tasks.query.process_state.published_library import PublishedLibrary
from tasks.services import Services
from tests.support.samples.library import write_topics
from tests.support.samples.tiny import settle, tiny_backend

TASK = "true a bicycle wheel and replace a broken spoke"
INDEX = "Elasticsearch at https://es.internal:9200"
GRAPH = "Neo4j at bolt://10.0.0.7:7687"


class Server:
    """A store that stops answering, with errors that name its address."""

    def __init__(self, store: object, address: str) -> None:
        self._store = store
        self._address = address
        self.away = False

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._store, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if self.away:
                raise TransientError(f"{self._address} does not answer: ConnectError('refused')")
            return method(*arguments, **named)

        return call


class Distributed:
    """Services whose stores are servers."""

    def __init__(self, services: Services) -> None:
        self.index = Server(services.index, INDEX)
        self.graph = Server(services.graph, GRAPH)
        self._services = replace(
            services,
            index=cast(Any, self.index),
            graph=cast(Any, self.graph),
            reranker=None,
            usage_counter=cast(Any, Uses()),
        )
        self._library = PublishedLibrary(services.graph, MemoryRecords(services.index))

    def restart(self) -> None:
        """Forget which server failed."""
        services = self._services
        self._library = PublishedLibrary(
            services.graph, MemoryRecords(services.index), CircuitBreakers()
        )

    def ask(self) -> Bundle:
        services = replace(
            self._services, library=self._library, circuit_breakers=CircuitBreakers()
        )
        request = QueryAsked(task=TASK, explain=True)
        return answer_query(services, Deadline(30), "q-1", request).bundle


class Uses:
    """Counts nothing."""

    def record(self, skill_ids: object) -> None:
        del skill_ids


@pytest.fixture(scope="module")
def distributed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    base: Path = tmp_path_factory.mktemp("degraded")
    root = write_topics(base / "crafts")
    with tiny_backend(base / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        settle(backend)
        yield Distributed(backend.services)


@pytest.mark.parametrize(
    ("away", "reasons"),
    [
        ((), []),
        (
            ("index",),
            [
                "ranked by the words in memory: the search index did not answer",
                "descriptions in place of passages: the search index did not answer",
            ],
        ),
        (
            ("graph",),
            [
                "links and paths are not known: the catalog did not answer",
                "the library as of 0 s ago: a store did not answer",
            ],
        ),
        (
            ("index", "graph"),
            [
                "links and paths are not known: the catalog did not answer",
                "the library as of 0 s ago: a store did not answer",
                "ranked by the words in memory: the search index did not answer",
                "descriptions in place of passages: the search index did not answer",
            ],
        ),
    ],
)
def test_the_bundle_says_what_is_missing_and_the_log_says_why(
    distributed: Distributed, away: tuple[str, ...], reasons: list[str]
) -> None:
    distributed.restart()
    whole = distributed.ask()
    assert whole.degraded == ()
    distributed.index.away = "index" in away
    distributed.graph.away = "graph" in away
    try:
        with capture_logs() as logs:
            bundle = distributed.ask()
    finally:
        distributed.index.away = distributed.graph.away = False
    assert sorted(bundle.degraded) == sorted(reasons)
    text = bundle.model_dump_json()
    for secret in ("internal", "10.0.0.7", "9200", "7687", "ConnectError"):
        assert secret not in text
    warnings = [line for line in logs if line["log_level"] == "warning"]
    assert len(warnings) == bool(away)
    if away:
        said = " ".join(warnings[0]["errors"])
        assert [address in said for address in (INDEX, GRAPH)] == [
            "index" in away,
            "graph" in away,
        ]
    if "graph" not in away or "index" not in away:
        assert bundle.skills[0].skill_id == whole.skills[0].skill_id
