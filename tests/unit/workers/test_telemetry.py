"""OTLP log records: which are read, and which outcomes they become."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from config.errors import UsageError
from config.settings import Settings
from skills.access import UNRESTRICTED
from skills.events import Event, OutcomesReported
from skills.outcomes.model import AnsweredQuery, AnsweredSkill, OutcomeKind, Reporter
from tasks.outcomes.sqlite import SqliteOutcomeStore
from workers.telemetry.otlp_logs import SkillActivation, read_logs
from workers.telemetry.skill_activations import ActivationReporter, describe_ignored

NOON = 1_780_000_000.0


def attribute(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def record(**changes: Any) -> dict[str, Any]:
    """A log record as Claude Code sends it."""
    made = {
        "timeUnixNano": str(int(NOON * 1e9)),
        "body": {"stringValue": "claude_code.skill_activated"},
        "attributes": [
            attribute("session.id", "s-1"),
            attribute("event.name", "skill_activated"),
            attribute("skill.name", "kiln-firing"),
        ],
    }
    return {**made, **changes}


def request(*records: Any, resource: list[dict[str, Any]] | None = None) -> bytes:
    return json.dumps(
        {
            "resourceLogs": [
                {
                    "resource": {"attributes": resource or []},
                    "scopeLogs": [{"scope": {}, "logRecords": list(records)}],
                }
            ]
        }
    ).encode()


def test_an_activation_is_read() -> None:
    found = read_logs(request(record()))
    assert found.activations == [SkillActivation("s-1", "", "", "kiln-firing", NOON)]
    assert not found.ignored


@pytest.mark.parametrize(
    "named",
    [
        {"attributes": [attribute("event.name", "claude_code.skill_activated")], "body": {}},
        {"attributes": [], "eventName": "gen_ai.skill_activated", "body": {}},
        {"attributes": [], "body": {"stringValue": "skill_activated"}},
    ],
)
def test_the_event_is_known_by_any_of_its_names(named: dict[str, Any]) -> None:
    about = [attribute("session.id", "s-1"), attribute("skill.name", "x")]
    named = {**named, "attributes": [*named["attributes"], *about]}
    assert len(read_logs(request(record(**named))).activations) == 1


def test_attributes_of_the_resource_count_where_the_record_has_none() -> None:
    own = [attribute("event.name", "skill_activated"), attribute("skillbus.skill_id", "lib:a")]
    shared = [attribute("session.id", "s-2"), attribute("skillbus.query_id", "q-1")]
    [found] = read_logs(request(record(attributes=own), resource=shared)).activations
    assert found == SkillActivation("s-2", "q-1", "lib:a", "", NOON)
    [found] = read_logs(
        request(record(attributes=[*own, attribute("session.id", "s-3")]), resource=shared)
    ).activations
    assert found.session == "s-3"


IGNORED = [
    ({"attributes": [attribute("event.name", "tool_result")], "body": {}}, "other events"),
    ({"attributes": "none", "body": 3}, "other events"),
    ({"attributes": [attribute("skill.name", "x")]}, "without session.id"),
    ({"attributes": [attribute("session.id", "x")]}, "without skill.name"),
    ({"attributes": [{"key": "session.id", "value": {"intValue": "3"}}]}, "without session.id"),
    (
        {"attributes": [attribute("session.id", "\ud800"), attribute("skill.name", "x")]},
        "without session.id",
    ),
]


@pytest.mark.parametrize(("changes", "reason"), IGNORED)
def test_other_records_are_ignored_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    found = read_logs(request(record(**changes), record()))
    assert len(found.activations) == 1
    assert dict(found.ignored) == {reason: 1}


@pytest.mark.parametrize("time", ["", "-1", "x", "9" * 21, None, 1.5, []])
def test_a_time_that_is_none_is_unknown(time: Any) -> None:
    [found] = read_logs(request(record(timeUnixNano=time))).activations
    assert found.at == 0.0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"x"',
        b"\xff",
        b"{",
        b"[" * 100_000,
        b'{"resourceLogs": null}',
        b'{"resourceLogs": [3]}',
    ],
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(UsageError):
        read_logs(body)


@pytest.mark.parametrize(
    "body",
    [{}, {"resourceLogs": []}, {"resourceLogs": [{}]}, {"resourceLogs": [{"scopeLogs": {}}]}],
)
def test_a_request_without_records_holds_nothing(body: dict[str, Any]) -> None:
    found = read_logs(json.dumps(body).encode())
    assert (found.activations, dict(found.ignored)) == ([], {})


def test_a_record_of_another_type_is_malformed() -> None:
    assert dict(read_logs(request(3, None, [])).ignored) == {"malformed records": 3}


# -- outcomes


class Backend:
    """The stores that a reporter reads, and the events that it sends."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.store = SqliteOutcomeStore(":memory:")
        self.graph = SimpleNamespace(get_entries=self._get_entries)
        self.accepted: dict[str, Event] = {}
        self.reads = 0

    def _get_entries(self, skill_ids: list[str]) -> list[Any]:
        self.reads += 1
        names = {"crafts:pottery/k1": "Kiln Firing"}
        return [SimpleNamespace(skill_id=one, name=names[one]) for one in skill_ids if one in names]

    def outcome_store(self) -> SqliteOutcomeStore:
        return self.store

    def accept_if_new(self, event: Event) -> bool:
        return self.accepted.setdefault(event.id, event) is event

    def report(self, owner: str, *activations: SkillActivation) -> str:
        reporter = ActivationReporter(self, owner, UNRESTRICTED)  # type: ignore[arg-type]
        return describe_ignored(reporter.report(activations))

    def outcomes(self) -> list[tuple[str, str, str]]:
        found = []
        for event in self.accepted.values():
            data = event.parse_data()
            assert isinstance(data, OutcomesReported)
            [one] = data.outcomes
            assert (one.outcome, one.by) == (OutcomeKind.USED, Reporter.AGENT)
            found.append((event.owner, data.query_id, one.skill_id))
        return found


def answer(query_id: str, at: float, *skills: str, owner: str = "ci") -> AnsweredQuery:
    sent = tuple(AnsweredSkill(skill_id, 1, 1) for skill_id in skills)
    return AnsweredQuery(query_id, owner, "s-1", "", at, True, skills=sent)


@pytest.fixture
def backend() -> Iterator[Backend]:
    made = Backend()
    made.store.add_answers(
        [
            answer("early", NOON - 300, "crafts:pottery/k1", "crafts:weaving"),
            answer("late", NOON - 200, "crafts:pottery/k1"),
            answer("after", NOON + 300, "crafts:pottery/k1"),
            answer("other", NOON - 100, "crafts:pottery/k1", owner="eve"),
        ]
    )
    yield made
    made.store.close()


ACTIVATION = SkillActivation("s-1", "", "", "kiln_firing", NOON)


@pytest.mark.parametrize(
    "name", ["kiln_firing", "KILN firing", "k1", "crafts:pottery/k1", "potters:kiln-firing"]
)
def test_the_latest_query_that_sent_the_skill_gets_the_outcome(backend: Backend, name: str) -> None:
    assert backend.report("ci", replace(ACTIVATION, name=name)) == ""
    assert backend.outcomes() == [("ci", "late", "crafts:pottery/k1")]
    [event] = backend.accepted.values()
    assert event.time.timestamp() == NOON


def test_an_earlier_query_gets_what_only_it_sent(backend: Backend) -> None:
    assert backend.report("ci", replace(ACTIVATION, name="", skill_id="crafts:weaving")) == ""
    assert backend.outcomes() == [("ci", "early", "crafts:weaving")]


def test_a_query_may_be_named(backend: Backend) -> None:
    assert backend.report("ci", replace(ACTIVATION, query_id="early", session="")) == ""
    assert backend.outcomes() == [("ci", "early", "crafts:pottery/k1")]


def test_activations_of_one_query_are_one_outcome(backend: Backend) -> None:
    backend.report("ci", ACTIVATION, replace(ACTIVATION, at=NOON + 9))
    backend.report("ci", ACTIVATION)
    assert len(backend.accepted) == 1


def test_names_are_read_in_one_call(backend: Backend) -> None:
    many = [answer(f"q{n}", NOON - 900 + n, f"crafts:s{n}") for n in range(20)]
    backend.store.add_answers(many)
    unknown = (replace(ACTIVATION, name=f"unknown-{n}") for n in range(3))
    assert backend.report("ci", *unknown, ACTIVATION).startswith("3 of skills")
    assert backend.reads == 1
    assert backend.outcomes() == [("ci", "late", "crafts:pottery/k1")]


def test_others_queries_are_unknown(backend: Backend) -> None:
    unknown = "2 of unknown sessions or queries"
    named = replace(ACTIVATION, query_id="late")
    assert backend.report("eve2", ACTIVATION, named) == unknown
    assert backend.report("eve", named) == "1 of unknown sessions or queries"
    assert backend.accepted == {}
    assert backend.report("", named) == ""


def test_a_skill_that_was_not_sent_is_ignored(backend: Backend) -> None:
    wrong = replace(ACTIVATION, name="knitting"), replace(ACTIVATION, name="", skill_id="a:b")
    assert backend.report("ci", *wrong) == (
        "2 of skills that no query of the session was answered with"
    )
    long_before = replace(ACTIVATION, at=NOON - 900)
    assert backend.report("ci", long_before) == "1 of unknown sessions or queries"
