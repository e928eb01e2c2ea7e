"""The AsyncAPI 3.0 document of the queues: events, replies and their schemas."""

from __future__ import annotations

import json
from typing import Any

import yaml

from skills.events.correlation import EVENTS_CHANNEL, REPLY_PREFIX, STREAM_FIELD
from skills.events.envelope import EVENT_TYPES, Event
from skills.events.examples import get_example
from skills.events.replies import (
    MESSAGE_REFUSED,
    OUTCOME_RECORDED,
    OUTCOME_REFUSED,
    QUERY_ANSWERED,
    QUERY_FAILED,
    REPLIES,
    SKILL_FAILED,
    SKILL_PUBLISHED,
)
from skills.events.requests import OUTCOME_REPORTED, QUERY_ASKED, REQUESTS

_CONTENT_TYPE = "application/cloudevents+json"
_SCHEMAS = "#/components/schemas/"
_AMQP = "0.3.0"
"""Version of AsyncAPI's bindings for AMQP 0-9-1."""

_DESCRIPTION = """\
skillbus keeps a library of agent skills and answers tasks with bundles of them. Any program that
can write to a queue can send events and queries, as CloudEvents 1.0 in structured JSON. Replies go
to the queue or stream that the event names.

An event is identified by its `source` and `id` together and is processed once, however often it is
sent. A reply may be delivered twice, with the same `id`."""

_QUEUE_DESCRIPTION = """\
On RabbitMQ a durable queue: publish persistent messages to the default exchange with the queue's
name as routing key. The properties `reply_to` and `correlation_id` may replace the event's
`replyto` and `correlationid`. On Redis a stream, `XADD {channel} * {field} JSON`; the fields
`reply_to` and `correlation_id` of the entry may replace them."""


def asyncapi_document() -> str:
    """Return the document as YAML, as published under docs/reference."""
    # A JSON round trip copies shared objects, so that the YAML has no anchors.
    document = json.loads(json.dumps(_document()))
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text as block scalars."""


def _write_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def _document() -> dict[str, Any]:
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "skillbus",
            "version": "1.0.0",
            "description": _DESCRIPTION,
            "license": {
                "name": "Apache-2.0",
                "url": "https://www.apache.org/licenses/LICENSE-2.0",
            },
        },
        "defaultContentType": _CONTENT_TYPE,
        "servers": _servers(),
        "channels": {"events": _events(), "replies": _replies()},
        "operations": {
            "receiveQuestion": _receive_operation(
                "Answer a query", [QUERY_ASKED], [QUERY_ANSWERED, QUERY_FAILED, MESSAGE_REFUSED]
            ),
            "receiveChange": _receive_operation(
                "Apply a change",
                [name for name in REQUESTS if name not in (QUERY_ASKED, OUTCOME_REPORTED)],
                [SKILL_PUBLISHED, SKILL_FAILED, MESSAGE_REFUSED],
            ),
            "receiveOutcomes": _receive_operation(
                "Record outcomes of a query",
                [OUTCOME_REPORTED],
                [OUTCOME_RECORDED, OUTCOME_REFUSED, MESSAGE_REFUSED],
            ),
        },
        "components": {
            "messages": {name: _message(name) for name in EVENT_TYPES},
            "schemas": _schemas(),
            "securitySchemes": {
                "password": {
                    "type": "userPassword",
                    "description": "A user of the broker, if it requires one.",
                }
            },
        },
    }


def _servers() -> dict[str, Any]:
    def server(protocol: str, version: str, port: int, what: str) -> dict[str, Any]:
        return {
            "host": "{host}",
            "protocol": protocol,
            "protocolVersion": version,
            "description": what,
            "variables": {
                "host": {"default": f"localhost:{port}", "description": "Address of the broker."}
            },
            "security": [{"$ref": "#/components/securitySchemes/password"}],
        }

    return {
        "rabbitmq": server(
            "amqp", "0-9-1", 5672, "RabbitMQ, if `submissions.broker` is its address."
        ),
        "redis": server("redis", "7", 6379, "Redis, if `submissions.broker` is its address."),
    }


def _events() -> dict[str, Any]:
    return {
        "address": EVENTS_CHANNEL,
        "title": "Events, queries and outcomes",
        "description": _QUEUE_DESCRIPTION.format(channel=EVENTS_CHANNEL, field=STREAM_FIELD),
        "servers": [{"$ref": "#/servers/rabbitmq"}, {"$ref": "#/servers/redis"}],
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in REQUESTS},
        "bindings": {
            "amqp": _amqp_queue(
                {"name": EVENTS_CHANNEL, "durable": True, "exclusive": False, "autoDelete": False}
            ),
            "redis": {},
        },
        "x-redis-stream": {"stream": EVENTS_CHANNEL, "field": STREAM_FIELD},
    }


def _amqp_queue(queue: dict[str, Any]) -> dict[str, Any]:
    return {"is": "queue", "queue": queue, "bindingVersion": _AMQP}


def _replies() -> dict[str, Any]:
    return {
        "address": REPLY_PREFIX + "{name}",
        "title": "Replies",
        "description": "Declared and read by the requester. On Redis a stream, which is "
        f"trimmed and expires; the JSON text is in the field `{STREAM_FIELD}`.",
        "servers": [{"$ref": "#/servers/rabbitmq"}, {"$ref": "#/servers/redis"}],
        "parameters": {
            "name": {
                "description": "Chosen by the sender: up to 100 letters, digits, `.`, `_` or `-`, "
                "the first a letter or digit.",
                "examples": ["my-ci"],
            }
        },
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in REPLIES},
        "bindings": {"amqp": _amqp_queue({"name": REPLY_PREFIX + "{name}"}), "redis": {}},
        "x-redis-stream": {"stream": REPLY_PREFIX + "{name}", "field": STREAM_FIELD},
    }


def _receive_operation(summary: str, names: list[str], answers: list[str]) -> dict[str, Any]:
    return {
        "action": "receive",
        "summary": summary,
        "channel": {"$ref": "#/channels/events"},
        "messages": [{"$ref": f"#/channels/events/messages/{name}"} for name in names],
        "bindings": {"amqp": {"ack": True, "bindingVersion": _AMQP}, "redis": {}},
        "reply": {
            "address": {
                "location": "$message.payload#/replyto",
                "description": "Without it no reply is sent.",
            },
            "channel": {"$ref": "#/channels/replies"},
            "messages": [{"$ref": f"#/channels/replies/messages/{name}"} for name in answers],
        },
    }


def _message(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "title": EVENT_TYPES[name].__name__,
        "summary": (EVENT_TYPES[name].__doc__ or "").strip().partition("\n")[0],
        "contentType": _CONTENT_TYPE,
        "correlationId": {"location": "$message.payload#/correlationid"},
        "payload": {"$ref": f"{_SCHEMAS}{name}"},
        "bindings": {"amqp": {"messageType": name, "bindingVersion": _AMQP}, "redis": {}},
        "examples": [{"name": "example", "payload": get_example(name)}],
    }


def _schemas() -> dict[str, Any]:
    """Return schemas of the envelope, of each type's data, and of each event (both combined)."""
    found = _flatten_definitions(
        Event.model_json_schema(ref_template=_SCHEMAS + "{model}"), "Event"
    )
    for name, model in EVENT_TYPES.items():
        schema = model.model_json_schema(ref_template=_SCHEMAS + "{model}")
        found |= _flatten_definitions(schema, model.__name__)
        data = {"$ref": _SCHEMAS + model.__name__}
        kind = {"type": "object", "properties": {"type": {"const": name}, "data": data}}
        found[name] = {"allOf": [{"$ref": _SCHEMAS + "Event"}, kind]}
    return found


def _flatten_definitions(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a schema and its definitions at one level, in draft 7 as AsyncAPI requires."""
    definitions = schema.pop("$defs", {})
    return {key: _as_draft_07(value) for key, value in {**definitions, name: schema}.items()}


def _as_draft_07(node: Any) -> Any:
    """Convert a JSON Schema 2020-12 of pydantic to draft 7: `prefixItems` becomes `items`."""
    if isinstance(node, list):
        return [_as_draft_07(one) for one in node]
    if isinstance(node, dict):
        return {
            "items" if key == "prefixItems" else key: _as_draft_07(value)
            for key, value in node.items()
        }
    return node
