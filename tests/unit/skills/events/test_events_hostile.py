"""Events from anybody: whatever comes is an event or an error that says what is wrong."""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from config.errors import UsageError
from skills.bundle.model import BundlePassage, BundleSkill, LeftOutSkill, Revision
from skills.bundle.rejection import RejectionReason
from skills.events import (
    EVENT_TYPES,
    MAX_EVENT_FILE_BYTES,
    MAX_EVENT_FILES,
    QUERY_ASKED,
    REPLIES,
    REQUESTS,
    SKILL_UPSERTED,
    SOURCE_CHANGED,
    Event,
    EventData,
    GitFetchOptions,
    MessageRefused,
    OutcomesRecorded,
    OutcomesRefused,
    OutcomesReported,
    QueryAnswered,
    QueryAsked,
    QueryFailed,
    QueryFilters,
    SkillFailed,
    SkillOutcome,
    SkillPublished,
    SkillRemoved,
    SkillUpserted,
    SourceChanged,
    SourceRemoved,
    describe_validation_error,
    new_event,
    parse_event,
    parse_request,
    parse_sender,
)
from skills.events.examples import get_example
from skills.events.schema import event_schema
from skills.outcomes.model import OutcomeKind, Reporter, TaskResult
from tests.support.samples.events import attributes

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(max_size=30)
names = st.text("abcXYZ019_-.技能", min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..")
)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
skill_ids = st.builds("{}:{}".format, names, paths | st.just("."))
hashes = st.text("0123456789abcdef", min_size=64, max_size=64)
revisions = st.builds(Revision, seq=st.integers(0, 2**53), content_hash=hashes)
floats = st.floats(allow_nan=False, allow_infinity=False)


def tuples(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=3).map(tuple)


passages = st.builds(
    BundlePassage,
    first_line=st.integers(1, 99),
    last_line=st.integers(1, 99),
    heading_path=tuples(texts),
    roles=tuples(texts),
    text=texts,
)
skills = st.builds(
    BundleSkill,
    skill_id=skill_ids,
    name=texts,
    description=texts,
    source=names,
    path=texts,
    revision=revisions,
    licence=texts,
    language=texts,
    score=floats,
    why=tuples(texts),
    passages=tuples(passages),
)
files = st.dictionaries(names.map("f-{}".format), texts, max_size=3).map(
    lambda others: {"SKILL.md": "---\nname: x\n---\n\x00", **others}
)
reports = st.one_of(
    st.builds(
        SkillOutcome,
        skill_id=skill_ids,
        outcome=st.sampled_from([OutcomeKind.USED, OutcomeKind.HELPED, OutcomeKind.FAILED]),
        by=st.sampled_from(Reporter),
    ),
    st.builds(
        SkillOutcome,
        skill_id=skill_ids,
        outcome=st.just(OutcomeKind.REJECTED),
        reason=st.sampled_from(RejectionReason),
    ),
    st.builds(SkillOutcome, outcome=st.just(OutcomeKind.MISSING)),
)
DATA: dict[type[EventData], st.SearchStrategy[Any]] = {
    SourceChanged: st.builds(
        SourceChanged,
        source_id=names,
        root=texts.filter(lambda root: "\0" not in root),
        paths=tuples(paths),
        git=st.none() | st.builds(GitFetchOptions, branch=names, poll_seconds=st.floats(0, 1e9)),
    ),
    SourceRemoved: st.builds(SourceRemoved, source_id=names),
    SkillUpserted: st.builds(SkillUpserted, skill_id=skill_ids, files=st.none() | files),
    SkillRemoved: st.builds(SkillRemoved, skill_id=skill_ids),
    QueryAsked: st.builds(
        QueryAsked,
        task=texts,
        budget=st.none() | st.integers(1, 10_000_000),
        top=st.none() | st.integers(1, 100),
        filters=st.builds(QueryFilters, source=tuples(texts), tool=tuples(texts)),
        without=tuples(texts),
        explain=st.booleans(),
    ),
    QueryAnswered: st.builds(
        QueryAnswered,
        query_id=names,
        status=st.sampled_from(["SKILL_HIT", "NO_SKILL_HIT"]),
        task=texts,
        budget=st.integers(1, 9999),
        skills=tuples(skills),
        left_out=tuples(st.builds(LeftOutSkill, skill_id=skill_ids, name=texts, reason=texts)),
        timings_ms=st.dictionaries(names, floats, max_size=3),
    ),
    QueryFailed: st.builds(QueryFailed, query_id=names, reason=texts),
    SkillPublished: st.builds(
        SkillPublished,
        skill_id=skill_ids,
        revision=revisions,
        name=texts,
        warnings=st.integers(0, 9),
        safety_level=st.integers(0, 3),
    ),
    SkillFailed: st.builds(SkillFailed, skill_id=skill_ids, reason=texts),
    OutcomesReported: st.builds(
        OutcomesReported,
        query_id=names,
        outcomes=st.lists(reports, min_size=1, max_size=3).map(tuple),
        task_result=st.sampled_from(["", *TaskResult]),
    ),
    OutcomesRecorded: st.builds(OutcomesRecorded, query_id=names, outcomes=st.integers(0, 200)),
    OutcomesRefused: st.builds(OutcomesRefused, query_id=names, reason=texts),
    MessageRefused: st.builds(MessageRefused, reason=texts, letter_id=names, message_id=texts),
}
EXAMPLES = {name: get_example(name) for name in EVENT_TYPES}
VALIDATORS = {name: jsonschema.Draft202012Validator(event_schema(name)) for name in EVENT_TYPES}


def envelope(**changes: Any) -> str:
    return json.dumps(attributes(**changes))


def upserted(**data: Any) -> str:
    return envelope(type=SKILL_UPSERTED, data={"skill_id": "team:a"} | data)


def read(text: str | bytes) -> Event | None:
    """The event, or None after an error that can be shown and logged."""
    try:
        return parse_event(text)
    except UsageError as error:
        said = str(error)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", said)
        assert 10 < len(said) < 2_000
        return None


# -- round trips


@pytest.mark.parametrize("model", DATA, ids=lambda model: model.__name__)
def test_every_event_survives_json_and_fits_its_schema(model: type[EventData]) -> None:
    @given(DATA[model])
    @FEW
    def check(data: EventData) -> None:
        event = new_event(data, "test", "ab" * 16)
        text = event.model_dump_json()
        again = parse_event(text)
        assert again == event
        assert again.parse_data() == data
        VALIDATORS[event.type].validate(json.loads(text))

    check()


def test_every_type_is_tried() -> None:
    assert set(DATA) == set(EVENT_TYPES.values())
    assert set(EVENT_TYPES) == set(REQUESTS) | set(REPLIES)


# -- whatever comes

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=9,
)
members = st.dictionaries(
    st.sampled_from([*Event.model_fields, "traceparent", "dataschema", "data_base64", "__class__"])
    | texts,
    anything,
    max_size=6,
)


@given(st.binary(max_size=60) | st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_bytes_are_an_event_or_an_error(text: str | bytes) -> None:
    read(text)
    parse_sender(text)


@given(st.sampled_from(sorted(EVENT_TYPES)), members, members)
@settings(max_examples=50, deadline=None)
def test_objects_are_an_event_or_an_error(
    name: str, changed: dict[str, Any], data: dict[str, Any]
) -> None:
    event = EXAMPLES[name]
    text = json.dumps(event | changed | {"data": {**event["data"], **data}})
    found = read(text)
    parse_sender(text)
    if found is not None:
        # What is written once is read the same for ever; infinite numbers are written as null.
        again = parse_event(found.model_dump_json())
        assert parse_event(again.model_dump_json()) == again
        assert again.parse_data() == found.parse_data()


@given(st.sampled_from(sorted(EVENT_TYPES)), st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_events_are_an_event_or_an_error(name: str, drawn: st.DataObject) -> None:
    text = json.dumps(EXAMPLES[name]).encode()
    start = drawn.draw(st.integers(0, len(text)))
    end = drawn.draw(st.integers(start, min(len(text), start + 5)))
    noise = drawn.draw(st.sampled_from([b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"{"]))
    damaged = text[:start] + noise + text[end:]
    read(damaged)
    parse_sender(damaged)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0",
        b"\xff\xfe" + envelope().encode("utf-16-le"),
        b"\xef\xbb\xbf" + envelope().encode(),
        envelope().encode()[:-1],
        envelope().encode().replace(b"team", b"te\xffam"),
        envelope().replace("team", "te\\ud800am"),
        envelope().replace("team", "te\ud800am"),
        envelope(id="a\0b"),
        envelope(id="a\nb"),
        envelope(id="a\x9bb"),
        envelope(source="a\0b"),
        envelope(source="x" * 2_001),
        envelope(type="x" * 201),
        envelope(type="skillbus.source.changed.v1\n"),
        envelope(subject="a\0"),
        envelope(time=1_900_000_000),
        envelope(time="2030-01-02T03:04:05"),
        envelope(replyto="celery"),
        envelope(correlationid="a\nb"),
        envelope(correlationid="x" * 201),
        envelope(owner="a b"),
        envelope(data=[]),
        envelope(data={"source_id": "a\0b", "root": "/x"}),
        envelope(data={"source_id": "a", "root": "/x\0"}),
        envelope(data={"source_id": "a", "root": "/x" * 2_049}),
        envelope(data={"source_id": "a/../b", "root": "/x"}),
        envelope(data={"source_id": "..", "root": "/x"}),
        envelope(data={"source_id": "a//b", "root": "/x"}),
        envelope(data={"source_id": "a", "root": "/x", "paths": ["b\0"]}),
        envelope(type=QUERY_ASKED, data={"task": "x", "budget": "5"}),
        envelope(type=QUERY_ASKED, data={"task": "x", "top": True}),
        envelope(type=QUERY_ASKED, data={"task": "x", "explain": "yes"}),
        envelope(type=QUERY_ASKED, data={"task": "x", "line\nbreak": 1}),
        "[" * 100_000,
        envelope().replace('"/skills"', "[" * 100_000),
        envelope().replace('"/skills"', "1" * 5_000),
    ],
    ids=range(37),
)
def test_hostile_events_are_refused(text: str | bytes) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"skill_id": "team"}, "skill_id"),
        ({"skill_id": "team:"}, "skill_id"),
        ({"skill_id": "team:../up"}, "skill_id"),
        ({"skill_id": "team:/etc"}, "skill_id"),
        ({"skill_id": "../up:a"}, "skill_id"),
        ({"skill_id": "team:a\0"}, "skill_id"),
        ({"skill_id": "team:" + "x" * 4_096}, "skill_id"),
        ({"skill_id": "team:" + "技" * 1_364}, "4096 bytes"),
        ({"files": {}}, "files"),
        ({"files": {"README.md": "x"}}, r"SKILL\.md"),
        ({"files": {"SKILL.md": 5}}, "files"),
        ({"files": {"SKILL.md": "", "../x": ""}}, "relative"),
        ({"files": {"SKILL.md": "", "/etc/x": ""}}, "relative"),
        ({"files": {"SKILL.md": "", "a/./x": ""}}, "relative"),
        ({"files": {"SKILL.md": "", "a//x": ""}}, "relative"),
        ({"files": {"SKILL.md": "", "a\\x": ""}}, "printable"),
        ({"files": {"SKILL.md": "", "a\0x": ""}}, "printable"),
        ({"files": {"SKILL.md": "", "a\u202ex": ""}}, "printable"),
        ({"files": {"SKILL.md": "", "技" * 86: ""}}, "255 bytes"),
        ({"files": {"SKILL.md": "", "a": "", "a/b": ""}}, "cannot be a file"),
        ({"files": {"SKILL.md": "", "b/SKILL.md": ""}}, "another skill"),
        (
            {"files": {"SKILL.md": "技" * (MAX_EVENT_FILE_BYTES // 3)}},
            f"at most {MAX_EVENT_FILE_BYTES}",
        ),
        ({"files": {"SKILL.md": ""} | {f"f{n}": "" for n in range(MAX_EVENT_FILES)}}, "files"),
    ],
    ids=range(23),
)
def test_hostile_skills_are_refused(data: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        parse_event(upserted(**data))
    assert len(str(caught.value)) < 2_000


def test_an_id_is_limited_in_bytes_as_catalogs_are() -> None:
    longest = "team:" + "技" * 1_363
    assert SkillRemoved(skill_id=longest).skill_id == SkillUpserted(skill_id=longest).skill_id
    for model in (SkillRemoved, SkillUpserted):
        with pytest.raises(ValueError, match="4096 bytes"):
            model(skill_id=f"{longest}技")


def test_files_up_to_the_bounds_are_taken() -> None:
    size = (
        MAX_EVENT_FILE_BYTES
        - sum(len(f"f{n}") for n in range(MAX_EVENT_FILES - 1))
        - len("SKILL.md")
    )
    many = {"SKILL.md": "x" * size} | {f"f{n}": "" for n in range(MAX_EVENT_FILES - 1)}
    content = parse_event(upserted(files=many)).parse_data()
    assert isinstance(content, SkillUpserted)
    assert content.files == many


# -- unknown types, versions and members


def test_an_unknown_type_and_an_unknown_version_are_distinguished() -> None:
    with pytest.raises(UsageError, match=r"version 2 of skillbus\.query\.asked .*known: 1$"):
        parse_event(envelope(type="skillbus.query.asked.v2"))
    with pytest.raises(
        UsageError, match=r"type 'skillbus\.query\.sung\.v1' is not known; known: s"
    ):
        parse_event(envelope(type="skillbus.query.sung.v1"))
    with pytest.raises(UsageError, match=r"type 'skillbus\.query\.asked' is not known"):
        parse_event(envelope(type="skillbus.query.asked"))


def test_what_is_no_attribute_of_cloudevents_is_left_out() -> None:
    odd = {"Upper": "x", "under_score": "x", "nested": {"a": 1}, "long": "x" * 2_001, "nul": "\0"}
    fit = {"dataschema": "https://example.org/x", "number": 7, "flag": True}
    event = parse_event(envelope(**odd, **fit, nothing=None, subject=None, replyto=None))
    assert event.model_extra == fit
    assert set(json.loads(event.model_dump_json())) - set(json.loads(envelope())) == {
        "datacontenttype",
        *fit,
    }


def test_members_cannot_take_the_place_of_methods() -> None:
    event = parse_event(envelope(content="x", copy="x", json="x"))
    assert event.parse_data() == SourceChanged(source_id="team", root="/skills")


def test_data_that_cannot_be_written_is_refused() -> None:
    for value in (object(), b"x"):
        with pytest.raises(ValueError, match="cannot be written as JSON"):
            Event(id="1", source="x", type=SOURCE_CHANGED, data={"source_id": "a", "b": value})
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        Event(id="1", source="x", type=SOURCE_CHANGED, data={"source_id": "a", "b": deep})


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"data": {"source_id": "a", "b": "\ud800"}}, "line 1 column [0-9]+: "),
        ({"id": "\udc00"}, "line 1 column [0-9]+: "),
    ],
)
def test_a_lone_surrogate_is_named_in_every_form_of_an_event(
    members: dict[str, Any], place: str
) -> None:
    reason = r"a lone surrogate \(\\ud800 to \\udfff\) is no character; leave it out, or send"
    with pytest.raises(UsageError, match=f"^not a CloudEvents 1.0 object: {place}{reason}"):
        parse_event(envelope(**members))
    with pytest.raises(ValidationError) as caught:
        Event.model_validate(json.loads(envelope(**members)))
    [field] = members
    assert re.match(f"{field}: {reason}", describe_validation_error(caught.value))


def test_numbers_that_json_lacks_do_no_harm() -> None:
    event = parse_event(envelope(data={"source_id": "a", "b": math.inf, "c": math.nan}))
    assert parse_event(event.model_dump_json()).parse_data() == SourceChanged(source_id="a")


# -- what somebody else may send


def test_other_senders_cannot_say_how_a_repository_is_fetched() -> None:
    data = {"source_id": "team", "git": {"branch": "evil", "credential_file": "another"}}
    assert parse_event(envelope(data=data))
    with pytest.raises(UsageError, match=r"git: .*`skillbus sources add`"):
        parse_request(envelope(data=data))


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_requests_may_be_sent(name: str) -> None:
    text = json.dumps(get_example(name))
    assert parse_request(text) == parse_event(text)


@pytest.mark.parametrize("name", sorted(REPLIES))
def test_answers_may_not_be_sent(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is a reply of skillbus; send "):
        parse_request(json.dumps(get_example(name) | {"source": "me"}))


def test_other_senders_cannot_be_skillbus() -> None:
    with pytest.raises(UsageError, match="is reserved for skillbus"):
        parse_request(envelope(source="skillbus/gateway"))
    with contextlib.suppress(UsageError):
        parse_request(envelope(source="/skillbus/gateway"))
