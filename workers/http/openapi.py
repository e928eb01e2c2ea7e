"""The OpenAPI document: what FastAPI derives, with problems, tokens and events as they are here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from config.settings import Settings
from skills.events import REQUESTS, Event
from workers.backend.store_backend import StoreBackend
from workers.http.access import AccessRules, RequiredScope
from workers.http.problems import MEDIA_TYPE, Problem
from workers.http.tokens import TokenScope, TokenStore
from workers.monitoring.metrics import ProcessMetrics

_REFERENCE = "#/components/schemas/{model}"
_PUBLIC_PATHS = ("/healthz", "/readyz", "/v1/webhooks/{host}")
_METHODS = frozenset({"get", "post", "put", "patch", "delete"})


def install_openapi(gateway: FastAPI) -> None:
    """Have a gateway tell of itself with this document."""

    def document() -> dict[str, Any]:
        if gateway.openapi_schema is None:
            gateway.openapi_schema = _document(gateway)
        return gateway.openapi_schema

    gateway.openapi = document  # type: ignore[method-assign]  # FastAPI's own way to extend it


def render_openapi() -> str:
    """The document as it is published: of a gateway on a port."""
    from workers.http.app import create_api

    # Routes look at nothing else before they are called.
    closed = cast(StoreBackend, SimpleNamespace(settings=Settings(), journal=None))
    gateway = create_api(closed, AccessRules(TokenStore(Path("tokens.json"))), ProcessMetrics())
    return json.dumps(gateway.openapi(), indent=2, ensure_ascii=False) + "\n"


def _document(gateway: FastAPI) -> dict[str, Any]:
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
        "description": "What went wrong",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model="Problem")}}},
    }
    scopes = _scopes(gateway)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method not in _METHODS:
                continue
            if "$ref" in str(operation["responses"].get("422", "")):
                del operation["responses"]["422"]
            operation["responses"]["default"] = error_response
            operation["security"] = (
                [] if path in _PUBLIC_PATHS else [{"token": scopes[path, method]}]
            )
    return document


def _scopes(gateway: FastAPI) -> dict[tuple[str, str], list[str]]:
    """The scope that a token needs, by path and method; for bearers OpenAPI calls it a role."""
    found: dict[tuple[str, str], list[str]] = {}
    for route in gateway.state.routes:
        dependencies = [one.dependency for one in route.dependencies]
        own = [one.scope for one in dependencies if isinstance(one, RequiredScope)]
        least = max((*own, *gateway.state.scopes[route.path_format]), default=TokenScope.READ)
        for method in route.methods:
            found[route.path_format, method.lower()] = [least.name.lower()]
    return found


def _event_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """`CloudEvent`, one of the requests, and what it refers to."""
    envelope = Event.model_json_schema(ref_template=_REFERENCE)
    kinds = []
    for name, model in REQUESTS.items():
        schema = model.model_json_schema(ref_template=_REFERENCE)
        yield from schema.pop("$defs", {}).items()
        yield model.__name__, schema
        reference = {"$ref": _REFERENCE.format(model=model.__name__)}
        kinds.append({"properties": {"type": {"const": name}, "data": reference}})
    yield from envelope.pop("$defs", {}).items()
    # What is unset may be null, and no reply goes to a queue from here.
    optional = envelope["properties"].keys() - set(envelope["required"])
    unset = {name: {"anyOf": [envelope["properties"][name], {"type": "null"}]} for name in optional}
    properties = dict(sorted((envelope["properties"] | unset).items()))
    properties["replyto"] = {"enum": ["", None]}
    yield "CloudEvent", envelope | {"properties": properties, "oneOf": kinds}
