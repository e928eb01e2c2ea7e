"""Queries while servers do not answer: fixed texts for the bundle, errors only in the log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from structlog.testing import capture_logs

from config.errors import MisconfiguredError, TransientError
from graph.records import CatalogEntry, SafetyRecord, SkillState
from search.protocol import Filters
from search.text.query_understanding import understand
from skills.record import RevisionKey
from tasks.query.choose import ChosenSkill, SkillChoice
from tasks.query.context import QueryContext
from tasks.query.degradation import Degradations
from tasks.query.policy_filter import PolicyFilter
from tasks.query.process_state.circuit_breaker import CircuitBreaker, CircuitBreakers
from tasks.query.ranking import Ranking, TaskQuery
from tasks.query.read_chosen import ChosenRevisions, read_chosen
from tasks.query.retrieve import retrieve
from tasks.query.select_passages import select_passages
from tests.support.samples.query_context import make_context

POINTERS = {"crafts:bread": 1, "crafts:loom": 2, "other:net": 3}
ADDRESS = re.compile(r"https?:|bolt:|\d+\.\d+\.\d+\.\d+|:\d{2,5}|internal|secret")


class Away:
    """A store of which every call fails with an error that names its address."""

    def __init__(self, address: str) -> None:
        self._error = f"{address} does not answer: ConnectError('secret')"
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object) -> Any:
            self.calls += 1
            raise TransientError(f"{name}: {self._error}")

        return fail


DESCRIPTION = "Bake bread 🥖 \\ by Zoë"


class Catalog:
    """A catalog that answers."""

    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        return [
            CatalogEntry(
                skill_id, "crafts", "bread", SkillState.PUBLISHED, "bread", DESCRIPTION, seq=1
            )
            for skill_id in skill_ids or ()
        ]

    def get_safety_records(self, skill_ids: Sequence[str]) -> list[SafetyRecord]:
        return [SafetyRecord(skill_id, 1, 0, "", 0, ()) for skill_id in skill_ids]

    def list_sources(self) -> list[object]:
        return []


def away_index() -> Away:
    return Away("Elasticsearch at https://es.internal:9200")


def away_graph() -> Away:
    return Away("Neo4j at bolt://10.0.0.7:7687")


def context_of(graph: object, index: object, **request: Any) -> QueryContext:
    breakers = CircuitBreakers()
    return make_context(graph, index=index, pointers=POINTERS, circuit_breakers=breakers, **request)


def task_query(context: QueryContext) -> TaskQuery:
    snapshot = context.services.library.latest
    return TaskQuery(snapshot, understand(context.request.task), None)


def test_without_the_index_every_published_skill_is_a_candidate() -> None:
    context = context_of(Catalog(), away_index(), filters={"source": ["crafts"]})
    found = retrieve(context, task_query(context))
    assert found.keys == [RevisionKey("crafts:bread", 1), RevisionKey("crafts:loom", 2)]
    assert found.query.vector is None
    (reason,) = context.degradations.reasons
    assert reason == "ranked by the words in memory: the search index did not answer"


def test_a_filter_that_needs_the_index_fails_the_query() -> None:
    context = context_of(Catalog(), away_index(), filters={"licence": ["MIT"]})
    assert context.filters == Filters(licence=("MIT",))
    with pytest.raises(TransientError):
        retrieve(context, task_query(context))


def test_stores_that_are_no_servers_fail_the_query() -> None:
    context = make_context(Catalog(), index=away_index(), pointers=POINTERS)
    with pytest.raises(TransientError):
        retrieve(context, task_query(context))


def test_without_the_index_the_catalog_describes_the_chosen_skills() -> None:
    context = context_of(Catalog(), away_index())
    ranking = Ranking(understand("bake bread"), None)
    choice = SkillChoice([ChosenSkill("crafts:bread", 1.0, ())])
    chosen = read_chosen(context, ranking, choice)
    assert chosen.revisions["crafts:bread"].parsed.record.description == DESCRIPTION
    (skill,) = select_passages(context, chosen)
    assert skill.passages == ()


def test_without_the_index_a_pinned_revision_is_sent_as_it_was_read() -> None:
    context, choice = context_of(Catalog(), away_index()), SkillChoice()
    choice.chosen += [ChosenSkill(name, 1.0, ()) for name in ("crafts:bread", "crafts:loom")]
    ranking = Ranking(understand("bake bread"), None)
    before = read_chosen(context, ranking, choice).revisions["crafts:bread"]
    pinned = replace(before, key=RevisionKey("crafts:bread", 7), content_hash="of the pin")
    only = PolicyFilter.allow_all(context.services.graph, {"crafts:bread": pinned})
    chosen = read_chosen(replace(context, policy_filter=only), ranking, choice)
    assert chosen.revisions["crafts:bread"].key.seq == 7
    assert chosen.revisions["crafts:loom"].key.seq == 1


def test_without_a_vector_of_the_task_no_section_vectors_are_read() -> None:
    class Index:
        """An index that fails the test if it is read."""

    context = make_context(Catalog(), index=Index(), pointers=POINTERS)
    chosen = ChosenRevisions(Ranking(understand("bake bread"), None))
    assert select_passages(context, chosen) == []


def test_no_address_and_no_error_text_is_in_the_reasons() -> None:
    context = context_of(away_graph(), away_index())
    services = context.services
    retrieve(context, task_query(context))
    read_chosen(context, Ranking(understand("bread"), None), SkillChoice([]))
    choice = SkillChoice([ChosenSkill("crafts:bread", 1.0, ())])
    read_chosen(context, Ranking(understand("bread"), None), choice)
    assert services.index.get_skill_cosines([], np.ones(4, np.float32)) == {}
    assert services.index.get_section_vectors([]) == {}
    assert services.index.get_cached_vectors([]) == {}
    assert services.graph.get_adjacency([], 1) == {}
    assert services.graph.get_links_among([]) == []
    reasons = context.degradations.reasons
    assert len(reasons) == 5
    assert not any(ADDRESS.search(reason) for reason in reasons), reasons


def test_the_log_has_the_errors_once_a_query() -> None:
    degradations = Degradations()
    error = TransientError("Elasticsearch at https://es.internal:9200 does not answer")
    for _ in range(3):
        degradations.add("ranked by words only", error)
        degradations.add("passages chosen by words only", error)
    with capture_logs() as logs:
        degradations.log_errors("q-1")
    (line,) = logs
    assert line["log_level"] == "warning"
    assert line["query_id"] == "q-1"
    assert line["errors"] == [str(error)]
    assert line["degraded"] == ["ranked by words only", "passages chosen by words only"]


def test_a_stage_that_ran_out_of_time_is_no_warning() -> None:
    degradations = Degradations()
    degradations.add("late was skipped: 200 ms needed, 100 allowed")
    with capture_logs() as logs:
        degradations.log_errors("q-1")
    assert logs == []


def test_an_open_breaker_fails_without_a_call() -> None:
    store, breaker = away_index(), CircuitBreaker()
    for _ in range(3):
        with pytest.raises(TransientError, match="does not answer"):
            breaker.call(lambda: store.search_many([]))
    assert store.calls == 1


def test_an_open_breaker_repeats_the_kind_of_error_and_its_public_message() -> None:
    errors: list[TransientError] = [
        TransientError("https://es.internal:9200 is away", public_message="the index is away"),
        MisconfiguredError("https://es.internal:9200 refused the password"),
    ]
    for error in errors:
        breaker, work = CircuitBreaker(), Mock(side_effect=error)
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                breaker.call(work)
            assert type(caught.value) is type(error)
            assert str(caught.value) == str(error)
            assert caught.value.public_message == error.public_message
        assert work.call_count == 1


def test_a_pin_is_not_called_unknown_while_the_catalog_is_away() -> None:
    with pytest.raises(TransientError, match="does not answer"):
        context_of(away_graph(), away_index(), pins={"crafts:bread": 1})


def test_a_breaker_closes_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    store, breaker = away_index(), CircuitBreaker()
    with pytest.raises(TransientError):
        breaker.call(lambda: store.search_many([]))
    now += 3.1
    assert breaker.call(lambda: "answered") == "answered"
