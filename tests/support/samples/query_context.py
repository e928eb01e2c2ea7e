"""Contexts of queries over made-up stores, for tests of single stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from config.settings import Settings
from graph.protocol import SkillGraph
from search.protocol import SearchIndex
from search.scoring.library_statistics import LibraryStatistics
from skills.events import QueryAsked
from tasks.query.context import QueryContext
from tasks.query.process_state.circuit_breaker import CircuitBreakers
from tasks.query.process_state.pointers import Pointers
from tasks.query.process_state.published_library import LibrarySnapshot
from tasks.services import Services


class FixedLibrary:
    """A published library that never changes."""

    def __init__(self, pointers: Mapping[str, int]) -> None:
        self.latest = LibrarySnapshot(Pointers(pointers), LibraryStatistics())
        self.epoch = 0

    def refresh(self) -> LibrarySnapshot:
        """The same as ever."""
        return self.latest


def make_context(
    graph: object,
    *,
    index: object = None,
    pointers: Mapping[str, int] | None = None,
    settings: Settings | None = None,
    circuit_breakers: CircuitBreakers | None = None,
    **request: Any,
) -> QueryContext:
    """A context over stores that have only the methods that a test needs; no policy."""
    nothing = cast(Any, None)
    services = Services(
        settings=settings or Settings(),
        journal=nothing,
        index=cast(SearchIndex, index),
        graph=cast(SkillGraph, graph),
        library=cast(Any, FixedLibrary(pointers or {})),
        encoder=nothing,
        encoder_model="",
        reranker=None,
        send_task=nothing,
        linker=nothing,
        usage_counter=nothing,
        outcomes=nothing,
        past_tasks=nothing,
        circuit_breakers=circuit_breakers,
    )
    asked = QueryAsked(**{"task": "bake bread"} | request)
    return QueryContext.create(services, asked, apply_policy=False)
