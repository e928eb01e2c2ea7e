"""The published JSON Schemas are what the code says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import jsonschema
import pytest

from skills.bundle.model import bundle_schema
from skills.events.asyncapi import asyncapi_document
from skills.events.schema import event_schemas, events_schema

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


SCHEMAS = {
    "bundle.schema.json": bundle_schema(),
    "events.schema.json": events_schema(),
    **{f"events/{name}.schema.json": text for name, text in event_schemas().items()},
}


@pytest.mark.parametrize(("name", "text"), SCHEMAS.items(), ids=list(SCHEMAS))
def test_the_published_schema_is_fresh(name: str, text: str) -> None:
    published = (REFERENCE / name).read_text(encoding="utf-8")
    assert published == text, "run `make schemas`"
    jsonschema.Draft202012Validator.check_schema(json.loads(published))


def test_the_published_asyncapi_document_is_fresh() -> None:
    published = (REFERENCE / "asyncapi.yaml").read_text(encoding="utf-8")
    assert published == asyncapi_document(), "run `make schemas`"


def test_nothing_else_is_published_among_the_schemas_of_events() -> None:
    there = {f"events/{path.name}" for path in (REFERENCE / "events").iterdir()}
    assert there == {name for name in SCHEMAS if name.startswith("events/")}


def test_every_generated_file_is_fresh() -> None:
    generator = runpy.run_path(str(REFERENCE / "schemas.py"))
    assert generator["stale"](generator["published"]()) == [], "run `make schemas`"
