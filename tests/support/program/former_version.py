"""Makes this process one of the version of the data before the present one.

Its catalog lacks the last migration: neither rules of findings, nor whether skills have scripts,
nor the version of the parser are stored. Its index has the schema before, whose records had neither
examples nor exclusions. What it writes, it writes as that version did; the rest of its code is the
present one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from graph.neo4j import migrations, transactions
from graph.records import Publication
from search.blob_codec import pack_forward
from search.elastic import document_codec, health, index, index_sets, replacement
from search.protocol import ForwardRecord
from tasks.ingest import maintain

SCHEMA = "1.2.1"
"""Of the index before records had examples."""

_present = migrations.migrations
_make_properties = transactions._published_properties
_withdrawn = transactions._WITHDRAWN_PROPERTIES
_for_good = ExitStack()


def former_migrations() -> dict[int, list[str]]:
    """The migrations of that version: all but the last."""
    known = _present()
    return {number: known[number] for number in known if number < max(known)}


def become_former() -> None:
    """Change what this process takes for the present version."""
    _for_good.enter_context(acting_former())


@contextmanager
def acting_former() -> Iterator[None]:
    """Change it for the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "migrations", former_migrations)
        patch.setattr(transactions, "_published_properties", _make_former_properties)
        patch.setattr(transactions, "_write_rules", lambda run, rules: None)
        patch.setattr(transactions, "_WITHDRAWN_PROPERTIES", _without_scans(_withdrawn))
        patch.setattr(maintain, "rescan_outdated", lambda services: 0)
        patch.setattr(maintain, "reparse_outdated", lambda services, deadline: 0)
        for module in (index_sets, index, health, replacement):
            patch.setattr(module, "SCHEMA", SCHEMA)
        patch.setattr(document_codec, "pack_forward", _pack_former_forward)
        yield


def _make_former_properties(one: Publication) -> dict[str, Any]:
    row = _make_properties(one)
    return row | {"shown": _without_scans(row["shown"])}


def _without_scans(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in properties.items()
        if name not in ("has_scripts", "scanned_seq", "parser", "parsed_seq")
    }


def _pack_former_forward(record: ForwardRecord) -> bytes:
    return pack_forward(replace(record, examples=record.examples[:0], excluded=()))
