"""JSON schemas of answer models, in the subset that servers enforce.

Servers that constrain an answer to a schema (`response_format` of type `json_schema`, `strict`)
agree on a small part of JSON Schema: every object lists all of its properties as required and
allows no others, and limits of numbers, texts and lists are left out. Pydantic checks the rest in
the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_KEPT = frozenset({"type", "enum", "description", "items", "properties", "anyOf", "$ref", "$defs"})


class _NotStrictError(Exception):
    """A part of a schema that cannot be enforced."""


def strict_schema(answer_type: type[BaseModel]) -> dict[str, Any] | None:
    """Return the schema of an answer model for servers that enforce it.

    None if it has a part that they cannot enforce: an object with free keys, a tuple, any value,
    or a root that is not one object.
    """
    schema = answer_type.model_json_schema()
    try:
        strict = _strict(schema)
    except _NotStrictError:
        return None
    return strict if strict.get("type") == "object" else None


def compact_schema(answer_type: type[BaseModel]) -> dict[str, Any]:
    """Return the whole schema of an answer model for a prompt: without titles and defaults."""
    compact: dict[str, Any] = _without_titles(answer_type.model_json_schema())
    return compact


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    if len(schema.get("allOf", ())) == 1:
        schema = {**schema, **schema["allOf"][0]}
    if "$ref" in schema:  # nothing may stand next to a reference
        return {"$ref": schema["$ref"]}
    kept = {name: value for name, value in schema.items() if name in _KEPT}
    if "oneOf" in schema:
        kept["anyOf"] = schema["oneOf"]
    if "const" in schema:
        kept["enum"] = [schema["const"]]
    if "anyOf" in kept:
        kept["anyOf"] = [_strict(one) for one in kept["anyOf"]]
    if "$defs" in kept:
        kept["$defs"] = {name: _strict(one) for name, one in kept["$defs"].items()}
    if schema.get("type") == "object":
        return kept | _strict_object(schema)
    if schema.get("type") == "array":
        if "prefixItems" in schema or not isinstance(schema.get("items"), dict):
            raise _NotStrictError
        kept["items"] = _strict(schema["items"])
    if not kept.keys() & {"type", "enum", "anyOf"}:
        raise _NotStrictError
    return kept


def _strict_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    if not properties or schema.get("additionalProperties", False) is not False:
        raise _NotStrictError
    return {
        "properties": {name: _strict(one) for name, one in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {key: _without_titles(one) for key, one in value.items()}
        if name in ("properties", "$defs")
        else value
        if name in ("enum", "const", "required")
        else _without_titles(value)
        for name, value in schema.items()
        if name not in ("title", "default")
    }
