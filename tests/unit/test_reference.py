"""The published JSON Schemas are what the code says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from skills.bundle import bundle_schema
from skills.events.schema import events_schema

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


@pytest.mark.parametrize(
    ("name", "text"),
    [("bundle.schema.json", bundle_schema()), ("events.schema.json", events_schema())],
)
def test_the_published_schema_is_fresh(name: str, text: str) -> None:
    published = (REFERENCE / name).read_text(encoding="utf-8")
    assert published == text, "run `make schemas`"
    jsonschema.Draft202012Validator.check_schema(json.loads(published))


def test_the_check_of_the_schemas_passes() -> None:
    run = subprocess.run(
        [sys.executable, REFERENCE / "schemas.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
