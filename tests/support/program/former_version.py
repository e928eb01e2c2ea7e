"""Makes this process one of the version of the data before the present one.

Its catalog lacks the last migration. Its index has the schema before, whose records had neither
examples nor exclusions. What it writes, it writes as that version did; the rest of its code is the
present one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from graph.neo4j import migrations
from search.blob_codec import pack_forward
from search.elastic import document_codec, health, index, index_sets, replacement
from search.protocol import ForwardRecord

SCHEMA = "1.2.1"
"""Of the index before records had examples."""

_present = migrations.migrations
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
        for module in (index_sets, index, health, replacement):
            patch.setattr(module, "SCHEMA", SCHEMA)
        patch.setattr(document_codec, "pack_forward", _pack_former_forward)
        yield


def _pack_former_forward(record: ForwardRecord) -> bytes:
    return pack_forward(replace(record, examples=record.examples[:0], excluded=()))
