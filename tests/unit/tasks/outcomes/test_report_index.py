"""The index of reports and the links made of it: those of a fresh reader, whatever happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings

from config.errors import TransientError
from config.learning_settings import LearningSettings
from graph.records import Link, LinkInput, SourceAccess
from skills.outcomes.model import OutcomeKind
from tasks.outcomes.links import report_index
from tasks.outcomes.links.links_from_use import LinksFromUse
from tasks.outcomes.links.mark_changed import has_unread_outcomes, mark_for_outcomes
from tasks.outcomes.links.report_index import ReportIndex
from tasks.outcomes.protocol import KEPT_TOMBSTONE_SECONDS, OutcomeStore
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tests.support.samples.changing_outcomes import (
    STEPS,
    ExchangedStore,
    FailingStore,
    apply,
    report,
)

HELPED, MISSING = OutcomeKind.HELPED, OutcomeKind.MISSING
SKILLS = ("lib:a", "lib:b", "lib:c")


class Catalog:
    """Every skill is published."""

    def get_entries(self, skill_ids: Sequence[str]) -> list[Any]:
        """An entry for each."""
        return [SimpleNamespace(skill_id=one, seq=1) for one in skill_ids]

    def read_access(self) -> SourceAccess:
        """One source, without groups of its own."""
        return SourceAccess([], {})


@pytest.fixture
def store() -> Iterator[FailingStore]:
    opened = FailingStore(":memory:")
    yield opened
    opened.close()


def learn(store: OutcomeStore, past_tasks: int = 3) -> LinksFromUse:
    return LinksFromUse(
        store,
        cast(Any, Catalog()),
        LearningSettings(past_tasks=past_tasks, trusted_owners=("ann",)),
    )


def read_all(index: ReportIndex) -> dict[str, list[Any]]:
    return {one: index.get_reports(one) for one in sorted(index.skill_ids)}


def find(learned: LinksFromUse) -> dict[str, set[Link]]:
    return {one: set(links) for one, links in learned.find_links(SKILLS).items()}


# -- room for older tasks
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([("lib:a", HELPED)], [("lib:a", HELPED)]),
        ([("lib:a", HELPED)], [("lib:b", HELPED)]),
        ([("", MISSING)], [("lib:a", HELPED)]),
    ],
)
def test_an_older_task_comes_back_where_a_newer_one_moves_behind_it(
    store: FailingStore, first: list[Any], then: list[Any]
) -> None:
    report(store, 1, first, day=1)
    report(store, 1, then, day=9, owner="ann")
    report(store, 2, [("lib:c", HELPED)], day=5)
    index = ReportIndex(store, 1)
    index.refresh()
    assert list(read_all(index)) != ["lib:c"]
    store.forget_owner("ann")
    touched = index.refresh().skill_ids
    assert list(read_all(index)) == ["lib:c"]
    assert touched >= {"lib:c", then[0][0]}


def test_changes_of_a_task_leave_no_trace_below_the_maximum(store: FailingStore) -> None:
    index = ReportIndex(store, 1_000)
    for day in range(300):
        report(store, 1, [("lib:a", HELPED)], day=day)
        index.refresh()
    assert len(index._oldest) < 100


def test_what_was_read_while_the_catalog_was_away_is_not_lost(
    store: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = learn(store)
    both = [("lib:a", HELPED), ("lib:b", HELPED)]
    report(store, 1, both, owner="ann")
    learned.refresh()
    find(learned)
    report(store, 2, both, owner="ann")

    def fail(_: Catalog) -> SourceAccess:
        raise TransientError("the catalog does not answer")

    with monkeypatch.context() as away:
        away.setattr(Catalog, "read_access", fail)
        with pytest.raises(TransientError):
            learned.refresh()
    learned.refresh()
    fresh = learn(store)
    fresh.refresh()
    assert find(learned) == find(fresh)


# -- when to start anew
def test_an_index_that_rested_longer_than_the_feed_remembers_starts_anew(
    store: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1e9
    monkeypatch.setattr("time.time", lambda: now)
    report(store, 1, [("lib:a", HELPED)])
    report(store, 2, [("lib:b", HELPED)], owner="ann")
    index = ReportIndex(store, 10)
    index.refresh()
    store.forget_before(2e9)
    now += KEPT_TOMBSTONE_SECONDS + 1
    store.forget_before(0.0)
    assert store.get_changes(0).query_ids == ()
    assert index.refresh() == ({"lib:a", "lib:b"}, 0)
    assert read_all(index) == {}


def test_links_of_outcomes_that_the_feed_no_longer_names_are_unread(
    monkeypatch: pytest.MonkeyPatch, store: FailingStore
) -> None:
    now = 1e9
    monkeypatch.setattr("time.time", lambda: now)
    graph = Graph()
    report(store, 1, [("lib:a", HELPED), ("lib:b", HELPED)])
    mark_for_outcomes(graph.serve(store))
    assert not has_unread_outcomes(graph.serve(store))
    store.forget_before(2e9)
    now += KEPT_TOMBSTONE_SECONDS + 1
    store.forget_before(0.0)
    assert has_unread_outcomes(graph.serve(store))
    mark_for_outcomes(graph.serve(store))
    assert graph.compared == set(SKILLS)
    assert not has_unread_outcomes(graph.serve(store))


def test_another_store_is_read_from_the_start(store: FailingStore) -> None:
    for number in range(5):
        report(store, number, [("lib:a", HELPED), ("lib:b", HELPED)])
    exchanged, graph = ExchangedStore(store), Graph()
    services = graph.serve(exchanged.as_store)
    mark_for_outcomes(services)
    assert not has_unread_outcomes(services)
    exchanged.store = SqliteOutcomeStore(":memory:")
    report(exchanged.store, 1, [("lib:c", HELPED)])
    assert has_unread_outcomes(services)
    mark_for_outcomes(services)
    assert graph.compared == set(SKILLS)
    assert list(read_all(services.learned_links.index)) == ["lib:c"]
    assert not has_unread_outcomes(services)


class Graph(Catalog):
    """A catalog without links; compared: the skills whose links were asked for last."""

    def __init__(self) -> None:
        self.state = ""
        self.compared: set[str] = set()

    def serve(self, store: OutcomeStore) -> Any:
        """The services of a process that starts with it and a store."""
        return SimpleNamespace(graph=self, outcomes=store, learned_links=learn(store))

    def get_entries(self, skill_ids: Sequence[str] = SKILLS) -> list[Any]:
        """All skills, if none are named."""
        return super().get_entries(skill_ids)

    def get_input_version(self, which: LinkInput) -> str:
        """As it was set."""
        assert which is LinkInput.OUTCOMES
        return self.state

    def set_input_version(self, which: LinkInput, version: str) -> None:
        """Keep it."""
        self.state = version

    def list_dismissed_links(self) -> list[Any]:
        """None."""
        return []

    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """None."""
        self.compared = set(skill_ids)
        return {one: [] for one in skill_ids}

    def mark_for_linking(self, skill_ids: Sequence[str]) -> None:
        """Changes nothing."""


# -- errors
def test_what_was_read_before_an_error_is_not_lost(
    store: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_index, "_BATCH_QUERIES", 1)
    learned = learn(store, 10)
    report(store, 1, [("lib:a", HELPED), ("lib:b", HELPED)])
    learned.refresh()
    assert find(learned)["lib:a"]
    report(store, 2, [("lib:a", HELPED), ("lib:c", HELPED)])
    report(store, 3, [("lib:b", HELPED)])
    store.fails_at = 3  # the changes, the outcomes of q2, those of q3
    with pytest.raises(TransientError):
        learned.refresh()
    refreshed = learned.refresh()
    fresh = learn(store, 10)
    fresh.refresh()
    assert find(learned) == find(fresh)
    assert refreshed.since == 0


@given(STEPS)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_what_is_held_is_that_of_a_fresh_reader(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[Any, ...]]
) -> None:
    monkeypatch.setattr(report_index, "_BATCH_QUERIES", 2)
    store = FailingStore(":memory:")
    learned = learn(store, 2)
    for changes, fails_at in [*steps, ([], 0)]:
        apply(store, changes)
        before, store.fails_at = find(learned), fails_at
        with suppress(TransientError):
            touched, since = learned.refresh()
            after = find(learned)
            changed = [link for one in SKILLS for link in before[one] ^ after[one]]
            assert not since or all(touched.intersection(link.ends) for link in changed)
        store.fails_at = 0
    fresh = learn(store, 2)
    fresh.refresh()
    assert find(learned) == find(fresh)
    assert read_all(learned.index) == read_all(fresh.index)
    store.close()
