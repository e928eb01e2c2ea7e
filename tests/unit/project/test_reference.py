"""The generated reference is what the code says; `make check` compares schemas and documents."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import jsonschema
import pytest

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
SCHEMAS = [path.relative_to(REFERENCE).as_posix() for path in REFERENCE.rglob("*.schema.json")]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid(name: str) -> None:
    published = (REFERENCE / name).read_text(encoding="utf-8")
    jsonschema.Draft202012Validator.check_schema(json.loads(published))


@pytest.mark.parametrize("page", ["settings", "findings", "metrics"])
def test_a_page_is_fresh(page: str) -> None:
    script = REFERENCE / f"{page}.py"
    generated = runpy.run_path(str(script))["page"]()
    published = script.with_suffix(".md").read_text(encoding="utf-8")
    assert published == generated, f"run `python docs/reference/{page}.py`"
