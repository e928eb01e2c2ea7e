"""Reads activations of skills from OTLP/HTTP log records in JSON.

The format is `ExportLogsServiceRequest` of the OpenTelemetry protocol 1.x in its JSON encoding:
resourceLogs > scopeLogs > logRecords, attributes as lists of key and value.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from config.errors import UsageError

EVENT_NAME = "skill_activated"
"""Last part of the name of events that are read, such as `claude_code.skill_activated`."""

SESSION_KEYS = ("skillbus.session", "session.id", "gen_ai.conversation.id")
QUERY_KEY = "skillbus.query_id"
SKILL_ID_KEY = "skillbus.skill_id"
SKILL_NAME_KEY = "skill.name"

_MAX_TEXT = 4_300
_SURROGATE = re.compile("[\ud800-\udfff]")
_NANOSECONDS = 1_000_000_000
_LAST_SECOND = 253_402_300_799
"""End of the year 9999; larger numbers are not times."""


@dataclass(frozen=True, slots=True)
class SkillActivation:
    """An activation: an agent began to follow a skill.

    Of session and query_id, and of skill_id and name, at least one is given, the other may be "".
    at: seconds since the epoch, 0 if unknown.
    """

    session: str
    query_id: str
    skill_id: str
    name: str
    at: float


@dataclass(slots=True)
class ReadLogs:
    """Activations of a request, and the numbers of ignored records by reason."""

    activations: list[SkillActivation] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)


def read_logs(body: bytes) -> ReadLogs:
    """Read a request; raises UsageError if it is not an object with a list of resources.

    Records of any other form or event are ignored, since one request carries
    everything that an agent logs.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise UsageError("not JSON; set OTEL_EXPORTER_OTLP_LOGS_PROTOCOL=http/json") from None
    resources = request.get("resourceLogs", []) if isinstance(request, dict) else None
    if not isinstance(resources, list) or len(_dicts(resources)) < len(resources):
        raise UsageError("not an OTLP request: an object with resourceLogs, a list of objects")
    found = ReadLogs()
    for resource in _dicts(resources):
        shared = _read_attributes(_dict(resource.get("resource")).get("attributes"))
        for scope in _dicts(resource.get("scopeLogs")):
            for record in _list(scope.get("logRecords")):
                _read_record(record, shared, found)
    return found


def _read_record(record: Any, shared: Mapping[str, str], found: ReadLogs) -> None:
    if not isinstance(record, dict):
        found.ignored["malformed records"] += 1
        return
    own = _read_attributes(record.get("attributes"))
    if not any(name.rpartition(".")[2] == EVENT_NAME for name in _event_names(record, own)):
        found.ignored["other events"] += 1
        return
    attributes = {**shared, **own}
    session = next((attributes[key] for key in SESSION_KEYS if attributes.get(key)), "")
    query_id = attributes.get(QUERY_KEY, "")
    skill_id, name = attributes.get(SKILL_ID_KEY, ""), attributes.get(SKILL_NAME_KEY, "")
    if not (session or query_id):
        found.ignored[f"without {SESSION_KEYS[1]}"] += 1
    elif not (skill_id or name):
        found.ignored[f"without {SKILL_NAME_KEY}"] += 1
    else:
        at = _read_time(record)
        found.activations.append(SkillActivation(session, query_id, skill_id, name, at))


def _event_names(record: Mapping[str, Any], attributes: Mapping[str, str]) -> Iterator[str]:
    """Yield the possible places of an event's name, which differ between versions of SDKs."""
    yield attributes.get("event.name", "")
    name = record.get("eventName")
    yield name if isinstance(name, str) else ""
    yield _read_text(record.get("body"))


def _read_attributes(pairs: Any) -> dict[str, str]:
    """Return attributes with a text as value; other attributes are left out."""
    found = {}
    for pair in _dicts(pairs):
        key, text = pair.get("key"), _read_text(pair.get("value"))
        if isinstance(key, str) and text and len(text) <= _MAX_TEXT:
            found[key] = text
    return found


def _read_text(value: Any) -> str:
    """Return the text of an AnyValue, "" for another type and for a lone surrogate, which JSON
    allows and no store can write."""
    text = _dict(value).get("stringValue")
    return text if isinstance(text, str) and not _SURROGATE.search(text) else ""


def _read_time(record: Mapping[str, Any]) -> float:
    """Return seconds since the epoch; 64-bit numbers are texts in OTLP's JSON."""
    for key in ("timeUnixNano", "observedTimeUnixNano"):
        text = str(record.get(key, ""))
        if text.isascii() and text.isdigit() and 0 < len(text) <= 20:
            seconds = int(text) / _NANOSECONDS
            if 0 < seconds < _LAST_SECOND:
                return seconds
    return 0.0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
