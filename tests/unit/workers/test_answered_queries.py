"""Answered queries: which are listed, in pages, and in which groups."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graph.local.store import SqliteSkillGraph
from skills.outcomes.model import (
    SECONDS_PER_DAY,
    AnsweredQuery,
    AnsweredSkill,
    Outcome,
    OutcomeKind,
    Reporter,
)
from tasks.outcomes.protocol import AnswerPlace
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.outcomes.usage import answer_groups
from tasks.outcomes.usage.answer_groups import group_answers
from workers.cli.program import cli
from workers.library.usage import answered
from workers.library.usage.answered import (
    NEWEST,
    AnswerFilter,
    QueryOutcome,
    describe_answered,
    list_answered,
)

DAY = 20_454
NOON = (DAY + 0.5) * SECONDS_PER_DAY


@pytest.fixture
def store() -> Iterator[SqliteOutcomeStore]:
    opened = SqliteOutcomeStore(":memory:")
    yield opened
    opened.close()


def ask(
    query_id: str, at: float, task: str = "", *, owner: str = "ann", is_use: bool = True
) -> AnsweredQuery:
    skills = (AnsweredSkill("lib:a", 1, 1), AnsweredSkill("vault:b", 1, 2, sent=False))
    return AnsweredQuery(
        query_id, owner, "", task, at, hit=True, probability=0.5, skills=skills, is_use=is_use
    )


def report(query_id: str, skill_id: str, kind: OutcomeKind) -> Outcome:
    return Outcome(f"{query_id}-{skill_id}", query_id, skill_id, kind, Reporter.AGENT, "ann", NOON)


def wanted(
    outcome: QueryOutcome | None = None,
    *,
    owner: str = "ann",
    visible: frozenset[str] | None = None,
    first: int = DAY,
) -> AnswerFilter:
    return AnswerFilter(first, outcome, lambda one: one == owner, visible)


def read(store: SqliteOutcomeStore, selection: AnswerFilter, limit: int = 2) -> list[list[str]]:
    """The ids of each page."""
    pages = []
    place: AnswerPlace | None = NEWEST
    while place is not None:
        page = list_answered(store, selection, place, limit)
        pages.append([one.query_id for one in page.answers])
        place = page.next
    return pages


def test_only_uses_of_the_range_and_of_ones_own_are_listed(store: SqliteOutcomeStore) -> None:
    store.add_answers(
        [
            ask("q1", NOON),
            ask("q2", NOON + 1, is_use=False),
            ask("q3", NOON + 2, owner="bob"),
            ask("q4", NOON + 3),
            ask("q5", NOON + 4),
            ask("early", NOON - SECONDS_PER_DAY),
        ]
    )
    assert read(store, wanted()) == [["q5", "q4"], ["q1"]]
    assert read(store, wanted(), limit=3) == [["q5", "q4", "q1"]]
    assert read(store, wanted(first=DAY - 1)) == [["q5", "q4"], ["q1", "early"]]


def test_a_page_ends_where_enough_was_read(
    store: SqliteOutcomeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answered, "_BATCH", 5)
    monkeypatch.setattr(answered, "_MAX_READ", 10)
    store.add_answers([ask(f"q{n:02}", NOON + n, owner="bob") for n in range(1, 25)])
    store.add_answers([ask("mine", NOON)])
    assert read(store, wanted()) == [[], [], ["mine"]]


def test_queries_are_filtered_by_what_came_of_them(store: SqliteOutcomeStore) -> None:
    store.add_answers([ask(f"q{n}", NOON + n) for n in range(4)])
    store.add_outcomes(
        [
            report("q0", "lib:a", OutcomeKind.HELPED),
            report("q1", "vault:b", OutcomeKind.HELPED),
            report("q2", "", OutcomeKind.MISSING),
        ]
    )
    found = {one: read(store, wanted(one), limit=9) for one in QueryOutcome}
    assert found.pop(QueryOutcome.HIT) == [["q3", "q2", "q1", "q0"]]
    assert found.pop(QueryOutcome.HELPED) == [["q1", "q0"]]
    assert found.pop(QueryOutcome.MISSING) == [["q2"]]
    assert found.pop(QueryOutcome.UNREPORTED) == [["q3"]]
    assert set(map(str, found.values())) == {"[[]]"}
    # What was reported of a hidden skill is hidden too.
    crafts = frozenset({"lib"})
    assert read(store, wanted(QueryOutcome.HELPED, visible=crafts)) == [["q0"]]
    assert read(store, wanted(QueryOutcome.UNREPORTED, visible=crafts)) == [["q3", "q1"]]


def test_alike_tasks_are_together_behind_the_newest_of_them(store: SqliteOutcomeStore) -> None:
    tasks = ("fire a stoneware kiln", "prune the apple tree", "fire the kiln of stoneware")
    store.add_answers([ask(f"q{n}", NOON + n, task) for n, task in enumerate(tasks)])
    store.add_outcomes([report("q0", "vault:b", OutcomeKind.FAILED)])
    page = list_answered(store, wanted(visible=frozenset({"lib"})), NEWEST, 9)
    groups = describe_answered(group_answers(store, page.answers, "other"), page, {"q1"})
    assert [[one["query_id"] for one in group["answers"]] for group in groups] == [
        ["q2", "q0"],
        ["q1"],
    ]
    assert [group["queries"] for group in groups] == [2, 1]
    rows = [one for group in groups for one in group["answers"]]
    assert [one["kept"] for one in rows] == [False, False, True]
    assert "vault" not in str(groups)
    assert rows[0] == {
        "query_id": "q2",
        "owner": "ann",
        "task": tasks[2],
        "answered_at": "2026-01-01T12:00:02+00:00",
        "hit": True,
        "probability": 0.5,
        "skills": [{"skill_id": "lib:a", "sent": True}],
        "outcomes": [],
        "kept": False,
    }


def test_what_is_reported_can_be_asked_for() -> None:
    assert {one.value for one in QueryOutcome if one.is_reported} == set(OutcomeKind)


def test_many_queries_are_grouped_in_parts(
    store: SqliteOutcomeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_groups, "MAX_TASKS", 3)
    tasks = ("prune the tree", *["fire the kiln"] * 5)
    answers = [ask(f"q{n}", NOON + n, task) for n, task in enumerate(tasks)]
    groups = group_answers(store, answers, "other")
    assert [[one.query_id for one in group] for group in groups] == [
        ["q3", "q4", "q5"],
        ["q1", "q2"],
        ["q0"],
    ]


def test_the_command_line_reads_pages_until_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answered, "_BATCH", 5)
    monkeypatch.setattr(answered, "_MAX_READ", 10)
    now = time.time()
    SqliteSkillGraph(tmp_path / "graph.db", writable=True).close()
    with closing(SqliteOutcomeStore(tmp_path / "outcomes.db")) as store:
        store.add_answers([ask(f"q{n:02}", now - n, owner="bob") for n in range(30)])
        store.add_answers([ask(f"mine{n}", now - 100 - n) for n in range(3)])

    def list_queries(*options: str) -> dict[str, Any]:
        args = ["--home", str(tmp_path), "usage", "--queries", "--json", *options]
        result = CliRunner().invoke(cli, args)
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def ids(found: dict[str, Any]) -> set[str]:
        return {one["query_id"] for group in found["groups"] for one in group["answers"]}

    found = list_queries("--owner", "ann")
    assert (ids(found), found["more"]) == ({"mine0", "mine1", "mine2"}, False)
    found = list_queries("--limit", "32")
    assert (len(ids(found)), found["more"]) == (32, True)
