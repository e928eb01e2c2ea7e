"""Owners, reply addresses and correlation ids of events, and creation of replies."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from pydantic import ValidationError

from config.errors import UsageError
from skills.access import Reader
from skills.events.envelope import Event, get_trace_id, new_event
from skills.events.problems import describe_validation_error
from skills.events.replies import MessageRefused, Reply, SkillFailed, SkillPublished

EVENTS_CHANNEL = "skillbus.events"
"""Name of the RabbitMQ queue or Redis stream from which skillbus consumes events."""

STREAM_FIELD = "event"
"""Field of a stream entry that holds the JSON text."""

REPLY_PREFIX = "skillbus.replies."
"""Prefix of the names of all queues and streams that replies may be written to."""

GATEWAY_SOURCE = "skillbus/gateway"
"""`source` of events that the gateway makes from checked requests; reserved for the gateway."""

_REPLY_NAME = re.compile(r"skillbus\.replies\.[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CORRELATION_ID = re.compile(r"[\x20-\x7e]{1,200}")


def check_reply_to(name: str) -> str:
    """Return `name` if replies may be written to it; raises UsageError otherwise."""
    if not _REPLY_NAME.fullmatch(name):
        raise UsageError(
            f"replies cannot go to {name[:200]!r}: the name must be {REPLY_PREFIX} and at most "
            "100 letters, digits, '.', '_' or '-'"
        )
    return name


def replace_origin(
    event: Event, owner: str, reader: Reader, reply_to: str = "", correlation_id: str = ""
) -> Event:
    """Return a received event with the sender, reply address and correlation id of its connection.

    owner, reader: always replace those of the event. reply_to, correlation_id: replace those
    of the event unless empty. Raises UsageError for a value that is not allowed.
    """
    if reply_to:
        check_reply_to(reply_to)
    changes = {"replyto": reply_to, "correlationid": correlation_id}
    members = event.model_dump() | {name: value for name, value in changes.items() if value}
    try:
        sender = {"owner": owner, "readergroups": reader.to_text()}
        return Event.model_validate(members | sender)
    except ValidationError as error:
        raise UsageError(f"event {event.id}: {describe_validation_error(error)}") from None


def replace_root(event: Event, root: str) -> Event:
    """Return an event about a source with the root that was checked, whose links are resolved: a
    link in the sender's root may lead elsewhere by the time of the sync."""
    return event.model_copy(update={"data": event.data | {"root": root}})


def new_reply(request: Event, data: Reply, source: str, trace_id: str = "") -> Event:
    """Return the reply to a request.

    `subject` is the request's id; `correlationid` and the trace are copied. The id is derived from
    request and data, so that a receiver recognises a duplicate.
    trace_id: the trace of the task, for a request without a trace.
    """
    event = new_event(data, source, get_trace_id(request) or trace_id)
    about = _get_subject(data)
    named = f"{request.source}\0{request.id}\0{event.type}\0{about}"
    changes = {
        "id": hashlib.sha256(named.encode()).hexdigest()[:32],
        "subject": request.id,
        "correlationid": request.correlationid,
    }
    return event.model_copy(update=changes)


def _get_subject(data: Reply) -> str:
    """Return a text that distinguishes replies of one type to one request."""
    if isinstance(data, SkillPublished):
        return f"{data.skill_id}@{data.revision.seq}"
    return f"{data.skill_id}: {data.reason}" if isinstance(data, SkillFailed) else ""


@dataclass(frozen=True, slots=True)
class MessageSender:
    """Reply address and ids read from a message that is not a valid event; "" if missing."""

    message_id: str = ""
    reply_to: str = ""
    correlation_id: str = ""


def parse_sender(text: str | bytes) -> MessageSender:
    """Parse the sender data of a refused message; members that cannot be parsed are ""."""
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
    """Return the reply to the sender of a refused message; `subject` is the message's id."""
    data = MessageRefused(reason=reason, letter_id=letter_id, message_id=sender.message_id)
    event = new_event(data, source)
    changes = {"subject": sender.message_id, "correlationid": sender.correlation_id}
    return event.model_copy(update=changes)
