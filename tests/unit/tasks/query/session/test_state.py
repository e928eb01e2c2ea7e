"""The state of a session, as a function of its answers and outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import TransientError, UsageError
from config.learning_settings import SessionSettings
from config.settings import Settings
from skills.access import UNRESTRICTED
from skills.events import QueryAsked
from skills.outcomes.model import AnsweredQuery, AnsweredSkill, Outcome, OutcomeKind, Reporter
from skills.record import RevisionKey
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.query.degradation import Degradations
from tasks.query.session.state import (
    NO_SESSION,
    Asker,
    SessionState,
    build_state,
    load_session,
    select_recent,
)

HOUR = 3600.0


def answer(
    number: int,
    *skills: AnsweredSkill,
    owner: str = "",
    session: str = "s",
    task: str = "bake",
    resend: bool = False,
    answered: float | None = None,
) -> AnsweredQuery:
    when = number * HOUR if answered is None else answered
    return AnsweredQuery(
        f"q{owner}{number}", owner, session, task, when, True, skills=skills, resend=resend
    )


def sent(skill_id: str, *lines: tuple[int, int], seq: int = 1, tokens: int = 10) -> AnsweredSkill:
    return AnsweredSkill(skill_id, seq, 1, tokens=tokens, lines=lines)


def outcome(number: int, skill_id: str, kind: OutcomeKind, **more: Any) -> Outcome:
    return Outcome(
        f"o{number}", f"q{number}", skill_id, kind, Reporter.AGENT, "", float(number), **more
    )


@pytest.fixture
def store() -> Iterator[SqliteOutcomeStore]:
    made = SqliteOutcomeStore(":memory:")
    yield made
    made.close()


def load(
    store: object, owner: str, asked: float, query_id: str = "now", **request: Any
) -> SessionState:
    services = cast(Any, SimpleNamespace(settings=Settings(), outcomes=store))
    query = QueryAsked(**{"task": "bake", "session": "s"} | request)
    return load_session(
        services, Asker(owner, asked, UNRESTRICTED), query, query_id, Degradations()
    )


def test_lines_of_a_revision_add_up_over_queries() -> None:
    state = build_state(
        [
            answer(1, sent("a:x", (1, 3)), sent("a:y", (5, 5))),
            answer(2, sent("a:x", (3, 4), (9, 9), tokens=7)),
        ],
        {},
    )
    assert state.answers == 2
    assert state.sent[RevisionKey("a:x", 1)].lines == {1, 2, 3, 4, 9}
    assert state.sent[RevisionKey("a:x", 1)].tokens == 17
    assert state.in_use == ("a:x", "a:y")


def test_another_revision_and_what_did_not_fit_are_not_sent() -> None:
    unfit = AnsweredSkill("a:z", 0, 2, sent=False)
    state = build_state([answer(1, sent("a:x", (1, 3), seq=4), unfit)], {})
    assert set(state.sent) == {RevisionKey("a:x", 4)}
    assert state.in_use == ("a:x",)


def test_lost_context_forgets_what_was_sent_before_and_not_what_is_in_use() -> None:
    answers = [answer(1, sent("a:x", (1, 3))), answer(2, sent("a:y", (1, 1)), resend=True)]
    assert set(build_state(answers, {}).sent) == {RevisionKey("a:y", 1)}
    assert not build_state(answers, {}, resend=True).sent
    assert build_state(answers, {}, resend=True).in_use == ("a:y", "a:x")


@pytest.mark.parametrize(
    ("kind", "more", "reason"),
    [
        (OutcomeKind.FAILED, {}, "it failed in this session"),
        (
            OutcomeKind.REJECTED,
            {"reason": "wrong_tool"},
            "it was rejected in this session (wrong_tool)",
        ),
        (
            OutcomeKind.SUPERSEDED,
            {"other": "a:y"},
            "it was superseded in this session by a:y",
        ),
    ],
)
def test_what_did_not_serve_is_refused(
    kind: OutcomeKind, more: dict[str, str], reason: str
) -> None:
    answers = [answer(1, sent("a:x", (1, 3)), sent("a:y", (1, 1)))]
    state = build_state(answers, {"q1": [outcome(1, "a:x", kind, **more)]})
    assert state.refused == {"a:x": reason}
    assert state.in_use == ("a:y",)


def test_the_last_word_counts() -> None:
    failed, helped = (
        outcome(1, "a:x", OutcomeKind.FAILED),
        outcome(2, "a:x", OutcomeKind.HELPED),
    )
    answers = [answer(1, sent("a:x", (1, 3))), answer(2)]
    assert not build_state(answers, {"q1": [failed], "q2": [helped]}).refused
    assert build_state(answers, {"q1": [failed]}).refused


def test_the_last_word_of_one_report_is_the_one_with_the_greatest_number() -> None:
    kinds = {2: OutcomeKind.HELPED, 10: OutcomeKind.FAILED}
    outcomes = [
        Outcome(f"event-{number}", "q1", "a:x", kind, Reporter.AGENT, "", 1.0)
        for number, kind in kinds.items()
    ]
    assert build_state([answer(1, sent("a:x", (1, 3)))], {"q1": outcomes}).refused


def test_a_skill_that_the_agent_may_not_see_is_neither_in_use_nor_named() -> None:
    answers = [answer(1, sent("a:x", (1, 3)), sent("b:z", (1, 1)), sent("a:y", (1, 1)))]
    reported = {"q1": [outcome(1, "a:x", OutcomeKind.SUPERSEDED, other="b:z")]}
    state = build_state(answers, reported, visible=frozenset({"a"}))
    assert state.in_use == ("a:y",)
    assert state.refused == {"a:x": "it was superseded in this session"}


@given(st.lists(st.floats(0, 100), max_size=12), st.floats(0, 40))
def test_a_session_ends_by_age(gaps: list[float], last: float) -> None:
    settings = SessionSettings(hours=12)
    now = 0.0
    answers = []
    for number, gap in enumerate(gaps):
        now += gap * HOUR
        answers.append(answer(number, answered=now))
    recent = select_recent(answers, now + last * HOUR, settings)
    expected = 0
    for gap in [last, *reversed(gaps[1:])][: len(gaps)]:
        if gap * HOUR > 12 * HOUR + 1e-6:
            break
        expected += 1
    assert abs(len(recent) - expected) <= any(abs(gap - 12) < 1e-6 for gap in (*gaps, last))
    assert recent == answers[len(answers) - len(recent) :]


def test_sessions_of_two_owners_never_mix(store: SqliteOutcomeStore) -> None:
    store.add_answers(
        [
            answer(1, sent("a:x", (1, 3)), owner="ann"),
            answer(1, sent("a:y", (1, 3)), owner="bob"),
            answer(1, sent("a:z", (1, 3))),
        ]
    )
    assert load(store, "ann", 2 * HOUR).in_use == ("a:x",)
    assert load(store, "bob", 2 * HOUR).in_use == ("a:y",)
    assert load(store, "", 2 * HOUR).in_use == ("a:z",)
    assert load(store, "eve", 2 * HOUR) == SessionState()


def test_a_query_that_is_tried_again_does_not_know_its_own_answer(
    store: SqliteOutcomeStore,
) -> None:
    store.add_answers([answer(1, sent("a:x", (1, 3)))])
    assert not load(store, "", 1 * HOUR, query_id="q1").sent
    assert load(store, "", 1 * HOUR, query_id="q2").sent


def test_an_obstacle_takes_the_task_of_the_session(store: SqliteOutcomeStore) -> None:
    store.add_answers([answer(1, task="bake bread")])
    assert load(store, "", 2 * HOUR, task="", obstacle="it burns").task == "bake bread"
    with pytest.raises(UsageError, match="no earlier query"):
        load(store, "", 2 * HOUR, task="", obstacle="it burns", session="other")


class BrokenStore:
    """A store that does not answer."""

    def list_session(self, owner: str, session: str, limit: int) -> list[AnsweredQuery]:
        """Fails."""
        raise TransientError("away")


def test_a_store_that_is_away_costs_the_session_alone() -> None:
    degradations = Degradations()
    services = cast(Any, SimpleNamespace(settings=Settings(), outcomes=BrokenStore()))
    query = QueryAsked(task="bake", session="s")
    state = load_session(services, Asker("", 1.0, UNRESTRICTED), query, "q", degradations)
    assert state is NO_SESSION
    assert "may be sent again" in degradations.reasons[0]
    with pytest.raises(TransientError):
        load(BrokenStore(), "", 1.0, task="", obstacle="it burns")
