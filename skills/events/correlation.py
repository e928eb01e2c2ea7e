"""Whose an event is, where its answer goes, and the events that answer it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from pydantic import ValidationError

from config.errors import UsageError
from skills.events.envelope import Event, describe_validation_error, get_trace_id, new_event
from skills.events.replies import MessageRefused, Reply, SkillFailed, SkillPublished

EVENTS_CHANNEL = "skillbus.events"
"""The queue of RabbitMQ, and the stream of Redis, that skillbus takes events from."""

STREAM_FIELD = "event"
"""The field of a stream's entry that holds the JSON text."""

REPLY_PREFIX = "skillbus.replies."
"""How the name of every queue or stream begins that answers may be written to."""

GATEWAY_SOURCE = "skillbus/gateway"
"""The `source` of events that the gateway makes of requests that it has checked; nobody else's
events have it."""

_REPLY_NAME = re.compile(r"skillbus\.replies\.[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CORRELATION_ID = re.compile(r"[\x20-\x7e]{1,200}")


def owner(event: Event) -> str:
    """Name of the token that sent an event, "" for the user's own socket and command line."""
    return event.owner


def reply_to(event: Event) -> str:
    """Name of the queue or stream where the answer is wanted, "" for nowhere."""
    return event.replyto


def correlation_id(event: Event) -> str:
    """What the sender wants repeated in the answer, "" for nothing."""
    return event.correlationid


def check_reply_to(name: str) -> str:
    """A reply name as it is; raises UsageError for one that answers may not be written to."""
    if not _REPLY_NAME.fullmatch(name):
        raise UsageError(
            f"replies cannot go to {name[:200]!r}: the name must be {REPLY_PREFIX} and at most "
            "100 letters, digits, '.', '_' or '-'"
        )
    return name


def replace_origin(event: Event, owner: str, reply_to: str = "", correlation_id: str = "") -> Event:
    """The event as the way in accepts it.

    owner: replaces what the sender wrote, "" too. reply_to, correlation_id: replace the event's
    own where given. Raises UsageError for one that is not allowed.
    """
    if reply_to:
        check_reply_to(reply_to)
    changes = {"replyto": reply_to, "correlationid": correlation_id}
    members = event.model_dump() | {name: value for name, value in changes.items() if value}
    try:
        return Event.model_validate(members | {"owner": owner})
    except ValidationError as error:
        raise UsageError(f"event {event.id}: {describe_validation_error(error)}") from None


def new_reply(request: Event, data: Reply, source: str, trace_id: str = "") -> Event:
    """An event that answers another: `subject` is the question's id, and its `correlationid` and
    trace go on.

    An answer that is made twice has the same id both times, so that who gets it twice can tell.
    trace_id: of the work, for a question without a trace of its own.
    """
    event = new_event(data, source, get_trace_id(request) or trace_id)
    about = _about(data)
    named = f"{request.source}\0{request.id}\0{event.type}\0{about}"
    changes = {
        "id": hashlib.sha256(named.encode()).hexdigest()[:32],
        "subject": request.id,
        "correlationid": request.correlationid,
    }
    return event.model_copy(update=changes)


def _about(data: Reply) -> str:
    """What tells answers of one type to one question apart."""
    if isinstance(data, SkillPublished):
        return f"{data.skill_id}@{data.revision.seq}"
    return f"{data.skill_id}: {data.reason}" if isinstance(data, SkillFailed) else ""


@dataclass(frozen=True, slots=True)
class MessageSender:
    """What a message that is no event still says of who sent it; "" for what it does not."""

    message_id: str = ""
    reply_to: str = ""
    correlation_id: str = ""


def parse_sender(text: str | bytes) -> MessageSender:
    """What can be made out of a refused message, so that its sender can be told."""
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        return MessageSender()
    if not isinstance(members, dict):
        return MessageSender()
    message_id, name, correlation = (
        str(members.get(key)) if isinstance(members.get(key), str) else ""
        for key in ("id", "replyto", "correlationid")
    )
    return MessageSender(
        message_id if len(message_id) <= 200 and message_id.isprintable() else "",
        name if _REPLY_NAME.fullmatch(name) else "",
        correlation if _CORRELATION_ID.fullmatch(correlation) else "",
    )


def new_refusal(sender: MessageSender, reason: str, letter_id: str, source: str) -> Event:
    """The event that tells a sender that a message was refused; its `subject` is its id."""
    data = MessageRefused(reason=reason, letter_id=letter_id, message_id=sender.message_id)
    event = new_event(data, source)
    changes = {"subject": sender.message_id, "correlationid": sender.correlation_id}
    return event.model_copy(update=changes)
