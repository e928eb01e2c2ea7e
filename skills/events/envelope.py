"""The CloudEvents 1.0 envelope of events: creating, parsing and validating it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from config.errors import UsageError
from config.tracing import TraceContext, context_headers, parse_context
from skills.access import UNRESTRICTED, Reader
from skills.events.problems import (
    LONE_SURROGATE,
    MAX_SHOWN_CHARACTERS,
    describe_validation_error,
)
from skills.events.replies import REPLIES, Reply
from skills.events.requests import REQUESTS, Request, SourceChanged

EventData = Request | Reply

EVENT_TYPES: dict[str, type[EventData]] = {**REQUESTS, **REPLIES}
"""Event type -> model of its data."""

RESERVED_SOURCE_PREFIX = "skillbus/"
"""Prefix of the `source` of events made by skillbus, reserved for it."""

_EXTENSION_NAME = re.compile(r"[a-z0-9]{1,64}")
_MAX_EXTENSION_CHARACTERS = 2_000
_MAX_READER_CHARACTERS = 20_000
"""Limit of `readergroups`; tokens of an issuer are shorter, so all their groups fit."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_VERSIONED = re.compile(r"(.+)\.v([0-9]+)", re.DOTALL)


def _require_timestamp_text(value: object) -> object:
    """Reject numbers, since they could be seconds or milliseconds."""
    if not isinstance(value, str | datetime):
        raise ValueError("must be an RFC 3339 timestamp")
    return value


def _now() -> datetime:
    return datetime.now(UTC)


def _is_unrestricted(value: str) -> bool:
    return value == UNRESTRICTED.to_text()


Timestamp = Annotated[AwareDatetime, BeforeValidator(_require_timestamp_text)]


class Event(BaseModel):
    """A CloudEvents 1.0 envelope in structured mode.

    Unknown extension attributes are kept; members that are not CloudEvents attributes are dropped.
    owner: name of the token that sent the event, "" for the local user. readergroups: groups with
    which the sender reads, `*` for a sender that sees everything. Both are set on receipt and
    replace the sender's values. replyto: queue or stream for replies, "" for none. correlationid:
    copied to replies.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    specversion: Literal["1.0"] = "1.0"
    id: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
    source: str = Field(min_length=1, max_length=2000, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
    type: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
    time: Timestamp = Field(default_factory=_now)
    datacontenttype: Literal["application/json"] = "application/json"
    subject: str = Field(
        default="", max_length=2000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$", exclude_if=not_
    )
    owner: str = Field(
        default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._@:/+-]{0,99})?$", exclude_if=not_
    )
    readergroups: str = Field(
        default=UNRESTRICTED.to_text(),
        max_length=_MAX_READER_CHARACTERS,
        pattern=r"^(\*|[A-Za-z0-9._@:/+ -]*)$",
        exclude_if=_is_unrestricted,
    )
    replyto: str = Field(
        default="",
        pattern=r"^(skillbus\.replies\.[A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="`skillbus.replies.` and a name of letters, digits, `.`, `_` and `-`",
        exclude_if=not_,
    )
    correlationid: str = Field(default="", pattern=r"^[\x20-\x7e]{0,200}$", exclude_if=not_)
    data: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _drop_unknown_members(cls, members: Any) -> Any:
        """Drop unset members, and those that cannot be extension attributes."""
        if not isinstance(members, Mapping):
            return members
        return {
            name: value
            for name, value in members.items()
            if name == "data"
            or (value is not None and (name in _MEMBERS or _is_extension(name, value)))
        }

    @field_validator("data")
    @classmethod
    def _check_serialisable(cls, data: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Reject data that cannot be written as JSON in UTF-8; data parsed from JSON is valid."""
        if info.mode == "python":
            try:
                json.dumps(data, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise ValueError(LONE_SURROGATE) from None
            except (TypeError, ValueError, RecursionError) as error:
                raise ValueError(f"cannot be written as JSON ({type(error).__name__})") from None
        return data

    @property
    def reader(self) -> Reader:
        """The sender as a reader of skills."""
        return Reader.parse(self.readergroups)

    def parse_data(self) -> EventData:
        """Return the data as its model; raises UsageError for an unknown type or invalid data."""
        model = EVENT_TYPES.get(self.type)
        if model is None:
            raise UsageError(_describe_unknown_type(self.type))
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            raise UsageError(f"event {self.id}: {describe_validation_error(error)}") from None


_MEMBERS = frozenset(Event.model_fields)


def _is_extension(name: object, value: object) -> bool:
    """Return whether a member is a valid extension attribute of CloudEvents."""
    if not isinstance(name, str) or not _EXTENSION_NAME.fullmatch(name):
        return False
    if isinstance(value, str):
        return len(value) <= _MAX_EXTENSION_CHARACTERS and not _CONTROL.search(value)
    return isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 31)


def _describe_unknown_type(name: str) -> str:
    versioned = _VERSIONED.fullmatch(name)
    others = [
        found[2]
        for known in EVENT_TYPES
        if versioned and (found := _VERSIONED.fullmatch(known)) and found[1] == versioned[1]
    ]
    if versioned and others:
        return (
            f"version {versioned[2][:MAX_SHOWN_CHARACTERS]} of {versioned[1]} is not known; "
            f"known: {', '.join(others)}"
        )
    return f"event type {name!r} is not known; known: {', '.join(sorted(EVENT_TYPES))}"


def new_event(data: EventData, source: str, trace_id: str = "") -> Event:
    """Create an event with `data`, a new id and the current time.

    trace_id: the trace to continue; set as `traceparent` if it is a valid W3C trace id.
    """
    name = next(name for name, model in EVENT_TYPES.items() if isinstance(data, model))
    event = Event(id=uuid.uuid4().hex, source=source, type=name, data=data.model_dump(mode="json"))
    parent = f"00-{trace_id}-{uuid.uuid4().hex[:16]}-01"
    return with_trace_context(event, parse_context(parent))


def get_trace_context(event: Event) -> TraceContext:
    """Return the trace of an event, by the distributed tracing extension of CloudEvents."""
    extensions = event.model_extra or {}
    return parse_context(extensions.get("traceparent"), extensions.get("tracestate"))


def with_trace_context(event: Event, context: TraceContext) -> Event:
    """Return an event as part of a trace; unchanged for an empty context."""
    changes = context_headers(context)
    if changes and "tracestate" in (event.model_extra or {}):
        changes.setdefault("tracestate", "")  # the event's own belongs to another trace
    return event.model_copy(update=changes)


def get_trace_id(event: Event) -> str:
    """Return the trace id of an event's `traceparent`, "" if that is missing or invalid."""
    return get_trace_context(event).trace_id


def parse_event(text: str | bytes) -> Event:
    """Parse an event from JSON; raises UsageError if it is invalid."""
    event = parse_envelope(text)
    event.parse_data()
    return event


def parse_envelope(text: str | bytes) -> Event:
    """Parse an event from JSON without a check of its type and data, which another version of
    skillbus may have written; raises UsageError if the envelope is invalid."""
    try:
        return Event.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(
            f"not a CloudEvents 1.0 object: {describe_validation_error(error)}"
        ) from None


def parse_request(text: str | bytes) -> Event:
    """Parse a request from another program as an event.

    Raises UsageError as `parse_event` does. Also raises it for a reply, for a reserved `source`,
    and for fetch options of git, which only `skillbus sources add` may set.
    """
    event = parse_event(text)
    if event.type not in REQUESTS:
        raise UsageError(f"{event.type} is a reply of skillbus; send {', '.join(REQUESTS)}")
    if event.source.startswith(RESERVED_SOURCE_PREFIX):
        raise UsageError(
            f"source {event.source!r}: {RESERVED_SOURCE_PREFIX}… is reserved for skillbus"
        )
    content = event.parse_data()
    if isinstance(content, SourceChanged) and content.git is not None:
        raise UsageError("git: only `skillbus sources add` can set how a repository is fetched")
    return event
