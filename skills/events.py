"""Events as CloudEvents 1.0 JSON objects, versioned by type."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.errors import UsageError

SOURCE_CHANGED = "skillbus.source.changed.v1"
SKILL_REMOVED = "skillbus.skill.removed.v1"
SOURCE_REMOVED = "skillbus.source.removed.v1"
QUERY_ASKED = "skillbus.query.asked.v1"


class SourceChanged(BaseModel):
    """Something below a directory may have changed; no paths means all of it.

    `paths` are relative to the root, with `/`: files or folders that came, changed or went.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    source_id: str = Field(min_length=1, max_length=200, pattern=r"^[^:@\s/\\][^:@\s\\]*$")
    root: str = Field(min_length=1)
    paths: tuple[str, ...] = ()


class SkillRemoved(BaseModel):
    """A skill is to be withdrawn, whatever its folder holds, until the folder changes again."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    skill_id: str = Field(min_length=3)


class SourceRemoved(BaseModel):
    """A source and all its skills are to be withdrawn."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    source_id: str = Field(min_length=1)


class QueryFilters(BaseModel):
    """Values that every skill of the bundle must have one of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: tuple[str, ...] = ()
    licence: tuple[str, ...] = ()
    language: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()


class QueryAsked(BaseModel):
    """A task in words, with how much the answer may hold.

    `without` switches stages off. `budget` is in tokens, `top` in skills; None takes the setting.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    budget: int | None = Field(default=None, ge=1, le=10_000_000)
    top: int | None = Field(default=None, ge=1, le=100)
    filters: QueryFilters = QueryFilters()
    without: tuple[str, ...] = ()
    explain: bool = False


_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?=-|$)"
)

Data = SourceChanged | SkillRemoved | SourceRemoved | QueryAsked

_TYPES: dict[str, type[Data]] = {
    SOURCE_CHANGED: SourceChanged,
    SKILL_REMOVED: SkillRemoved,
    SOURCE_REMOVED: SourceRemoved,
    QUERY_ASKED: QueryAsked,
}


class Event(BaseModel):
    """A CloudEvents 1.0 envelope in structured mode; extension attributes are kept aside."""

    model_config = ConfigDict(extra="allow", frozen=True)

    specversion: Literal["1.0"] = "1.0"
    id: str = Field(min_length=1, max_length=200)
    source: str = Field(min_length=1, max_length=2000)
    type: str
    time: datetime
    datacontenttype: Literal["application/json"] = "application/json"
    data: dict[str, Any]

    def content(self) -> Data:
        """The data as its model; raises UsageError for an unknown type or bad data."""
        model = _TYPES.get(self.type)
        if model is None:
            known = ", ".join(sorted(_TYPES))
            raise UsageError(f"event type {self.type!r} is not known; known: {known}")
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            raise UsageError(f"event {self.id}: {describe(error)}") from None


def events_schema() -> str:
    """The JSON Schema of every event, as published under docs/reference."""
    envelope = Event.model_json_schema()
    definitions: dict[str, Any] = envelope.pop("$defs", {})
    kinds = []
    for name, model in _TYPES.items():
        schema = model.model_json_schema(ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs", {}) | {model.__name__: schema}
        reference = {"$ref": f"#/$defs/{model.__name__}"}
        kinds.append({"properties": {"type": {"const": name}, "data": reference}})
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema |= envelope | {"oneOf": kinds, "$defs": definitions}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def new_event(data: Data, source: str, trace_id: str = "") -> Event:
    """An event about `data`, with a fresh id and the time of now.

    trace_id: of what led to it, where that has one; kept as `traceparent` when it is of that form.
    """
    name = next(name for name, model in _TYPES.items() if isinstance(data, model))
    event = Event(
        id=uuid.uuid4().hex,
        source=source,
        type=name,
        time=datetime.now(UTC),
        data=data.model_dump(mode="json"),
    )
    parent = f"00-{trace_id}-{uuid.uuid4().hex[:16]}-01"
    return event.model_copy(update={"traceparent": parent} if _TRACEPARENT.match(parent) else {})


def trace_id_of(event: Event) -> str:
    """The trace id of an event's `traceparent` (CloudEvents' extension for distributed tracing,
    in the form of W3C Trace Context), "" where it has none or one that is not of that form."""
    parent = (event.model_extra or {}).get("traceparent")
    found = _TRACEPARENT.match(parent) if isinstance(parent, str) else None
    return found[1] if found else ""


def parse_event(text: str | bytes) -> Event:
    """An event from JSON; raises UsageError that says what is wrong with it."""
    try:
        event = Event.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(f"not a CloudEvents 1.0 object: {describe(error)}") from None
    event.content()
    return event


def describe(error: ValidationError) -> str:
    """A validation error in one line: where, and what is wrong."""
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'value'}: {problem['msg']}"
        for problem in error.errors()
    )
