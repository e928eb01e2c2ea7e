"""The OpenAPI document: FastAPI's document with problems, token scopes and event schemas added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from skills.events import REQUESTS, Event
from workers.http.access import PUBLIC_PATHS
from workers.http.authentication import RequiredScope
from workers.http.problems import MEDIA_TYPE, Problem
from workers.http.tokens import TokenScope

_REFERENCE = "#/components/schemas/{model}"
_UNSECURED_PATHS = (*PUBLIC_PATHS, "/v1/webhooks/{host}")


def install_openapi(gateway: FastAPI) -> None:
    """Make a gateway serve this document."""

    def get_document() -> dict[str, Any]:
        if gateway.openapi_schema is None:
            gateway.openapi_schema = _build_document(gateway)
        return gateway.openapi_schema

    gateway.openapi = get_document  # type: ignore[method-assign]  # as FastAPI documents it


def _build_document(gateway: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=gateway.title,
        version=gateway.version,
        description=gateway.description,
        routes=gateway.routes,
    )
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = Problem.model_json_schema(ref_template=_REFERENCE)
    schemas |= dict(_event_schemas())
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    error_response = {
        "description": "The request failed",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model="Problem")}}},
    }
    scopes = _get_scopes(gateway)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if "$ref" in str(operation["responses"].get("422", "")):
                del operation["responses"]["422"]
            operation["responses"]["default"] = error_response
            operation["security"] = (
                [] if path in _UNSECURED_PATHS else [{"token": scopes[path, method]}]
            )
    return document


def _get_scopes(gateway: FastAPI) -> dict[tuple[str, str], list[str]]:
    """Return the scope that a token needs, by path and method; OpenAPI calls it a role."""
    found: dict[tuple[str, str], list[str]] = {}
    for route in gateway.state.routes:
        dependencies = [one.dependency for one in route.dependencies]
        own = [one.scope for one in dependencies if isinstance(one, RequiredScope)]
        least = max((*own, *gateway.state.scopes[route.path_format]), default=TokenScope.READ)
        for method in route.methods:
            found[route.path_format, method.lower()] = [least.name.lower()]
    return found


def _event_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schema `CloudEvent` for events that may be sent, and the schemas it refers to."""
    envelope = Event.model_json_schema(ref_template=_REFERENCE)
    kinds = []
    for name, model in REQUESTS.items():
        schema = model.model_json_schema(ref_template=_REFERENCE)
        yield from schema.pop("$defs", {}).items()
        yield model.__name__, schema
        reference = {"$ref": _REFERENCE.format(model=model.__name__)}
        kinds.append({"properties": {"type": {"const": name}, "data": reference}})
    yield from envelope.pop("$defs", {}).items()
    # Optional attributes may be null; replies to queues are not available over HTTP.
    optional = envelope["properties"].keys() - set(envelope["required"])
    unset = {name: {"anyOf": [envelope["properties"][name], {"type": "null"}]} for name in optional}
    properties = dict(sorted((envelope["properties"] | unset).items()))
    properties["replyto"] = {"enum": ["", None]}
    yield "CloudEvent", envelope | {"properties": properties, "oneOf": kinds}
