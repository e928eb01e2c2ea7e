"""Whose an event is, where its answer goes, and what the answer says of its question."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from config.errors import UsageError
from skills.access import UNRESTRICTED
from skills.bundle.model import Revision
from skills.events import (
    EVENT_TYPES,
    Event,
    MessageSender,
    QueryAsked,
    QueryFailed,
    SkillFailed,
    SkillPublished,
    check_reply_to,
    get_trace_id,
    new_event,
    new_refusal,
    new_reply,
    parse_event,
    parse_sender,
    replace_origin,
)
from skills.events.examples import get_example

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PAGE = (Path(__file__).resolve().parents[4] / "docs" / "reference" / "events.md").read_text(
    encoding="utf-8"
)
REPLIES = "skillbus.replies.my-ci"


def question(**members: Any) -> Event:
    event = new_event(QueryAsked(task="x"), "my-ci", TRACE)
    return parse_event(json.dumps(json.loads(event.model_dump_json()) | members))


def test_an_event_without_an_origin_is_the_users_and_wants_no_answer() -> None:
    event = question()
    assert (event.owner, event.replyto, event.correlationid) == ("", "", "")
    assert not {"owner", "replyto", "correlationid", "subject"} & set(
        json.loads(event.model_dump_json())
    )


def test_the_owner_is_never_the_senders_word() -> None:
    forged = question(owner="admin", replyto=REPLIES, correlationid="7")
    for name in ("ci", ""):
        accepted = replace_origin(forged, name, UNRESTRICTED)
        assert (accepted.owner, accepted.replyto, accepted.correlationid) == (
            name,
            REPLIES,
            "7",
        )
        assert parse_event(accepted.model_dump_json()) == accepted


def test_what_comes_with_the_event_counts_more() -> None:
    event = replace_origin(
        question(replyto=REPLIES, correlationid="7"), "", UNRESTRICTED, f"{REPLIES}-2", "8"
    )
    assert (event.replyto, event.correlationid) == (f"{REPLIES}-2", "8")
    assert get_trace_id(event) == TRACE
    assert replace_origin(event, "", UNRESTRICTED).id == event.id


@pytest.mark.parametrize(
    "name",
    [
        "celery",
        "skillbus.events",
        "skillbus.replies",
        "skillbus.replies.",
        "skillbus.replies..x",
        "skillbus.replies.-x",
        "skillbus.replies.a b",
        "skillbus.replies.a/b",
        "skillbus.replies.a\n",
        "skillbus.replies.a\0",
        "skillbus.replies.技",
        "skillbus.replies.*",
        "skillbus.replies." + "x" * 101,
        " skillbus.replies.x",
        "Skillbus.replies.x",
        "x.skillbus.replies.x",
    ],
)
def test_answers_go_to_reply_names_only(name: str) -> None:
    with pytest.raises(UsageError, match=r"replies cannot go to .*skillbus\.replies\."):
        check_reply_to(name)
    with pytest.raises(UsageError, match="replies cannot go to"):
        replace_origin(question(), "", UNRESTRICTED, name)
    with pytest.raises(UsageError, match="replyto"):
        question(replyto=name)
    assert parse_sender(json.dumps({"replyto": name})).reply_to == ""


@pytest.mark.parametrize(("name", "correlation"), [("a b", ""), ("x" * 101, ""), ("ci", "a\nb")])
def test_odd_owners_and_correlation_ids_are_refused(name: str, correlation: str) -> None:
    with pytest.raises(UsageError, match=r"(owner|correlationid): "):
        replace_origin(question(), name, UNRESTRICTED, "", correlation)


def test_an_answer_says_what_it_answers() -> None:
    asked = question(correlationid="try-1")
    answer = new_reply(asked, QueryFailed(query_id="q", reason="late"), "skillbus/consume")
    assert answer.subject == asked.id
    assert answer.correlationid == "try-1"
    assert get_trace_id(answer) == TRACE
    assert (answer.owner, answer.replyto) == ("", "")
    assert parse_event(answer.model_dump_json()) == answer


def test_an_answer_to_a_question_without_a_trace_has_that_of_the_work() -> None:
    asked = question(traceparent=None)
    answer = new_reply(asked, QueryFailed(query_id="q", reason="late"), "x", "ab" * 16)
    assert get_trace_id(answer) == "ab" * 16


def test_an_answer_that_is_made_twice_has_one_id() -> None:
    asked, other = question(), question()

    def published(seq: int, skill_id: str = "a:b") -> SkillPublished:
        revision = Revision(seq=seq, content_hash="0")
        return SkillPublished(skill_id=skill_id, revision=revision)

    answers = [
        new_reply(asked, QueryFailed(query_id="q", reason="late"), "x"),
        new_reply(other, QueryFailed(query_id="q", reason="late"), "x"),
        new_reply(asked, published(1), "x"),
        new_reply(asked, published(2), "x"),
        new_reply(asked, published(1, "a:c"), "x"),
        new_reply(asked, SkillFailed(skill_id="a:b", reason="no"), "x"),
    ]
    assert len({answer.id for answer in answers}) == len(answers)
    assert new_reply(asked, published(1), "x").id == answers[2].id


@pytest.mark.parametrize(
    ("text", "sender"),
    [
        (b"", MessageSender()),
        (b"\xff", MessageSender()),
        ("[" * 100_000, MessageSender()),
        ("[]", MessageSender()),
        ('{"id": 5, "replyto": ["x"], "correlationid": null}', MessageSender()),
        ('{"id": "a\\u0000", "correlationid": "a\\nb"}', MessageSender()),
        ('{"id": "\\ud800"}', MessageSender()),
        ('{"id": "%s"}' % ("x" * 201), MessageSender()),
        (
            f'{{"id": "4711", "replyto": "{REPLIES}", "correlationid": "7", "type": 5}}',
            MessageSender("4711", REPLIES, "7"),
        ),
    ],
    ids=range(9),
)
def test_what_can_be_made_out_of_a_sender_is(text: str | bytes, sender: MessageSender) -> None:
    assert parse_sender(text) == sender


def test_a_refusal_says_which_message_and_why() -> None:
    event = new_refusal(
        MessageSender("4711", REPLIES, "7"), "no data", "letter-1", "skillbus/consume"
    )
    assert (event.subject, event.correlationid) == ("4711", "7")
    assert event.data == {"reason": "no data", "letter_id": "letter-1", "message_id": "4711"}
    assert parse_event(event.model_dump_json()) == event
    assert parse_event(new_refusal(MessageSender(), "no", "", "skillbus/consume").model_dump_json())


# -- the page about events


def test_the_page_shows_real_events_and_errors() -> None:
    shown = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert len(shown) == 1
    for text in shown:
        event = parse_event(text)
        assert json.loads(text) == get_example(event.type)
    for name in EVENT_TYPES:
        assert f"| [`{name}`](events/{name}.schema.json) |" in PAGE
    for name in Event.model_fields:
        assert f"| `{name}` |" in PAGE or name == "subject"
    [errors] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    reported = json.loads(shown[0])
    for wrong, error in zip(
        ({"type": "skillbus.query.asked.v2"}, {"data": {}}), errors.splitlines(), strict=False
    ):
        with pytest.raises(UsageError, match=f"^{re.escape(error)}$"):
            parse_event(json.dumps(reported | wrong))
    with pytest.raises(UsageError, match=re.escape(errors.splitlines()[2])):
        check_reply_to("celery")
