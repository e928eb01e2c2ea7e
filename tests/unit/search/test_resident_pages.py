"""Pages of packs are released once a process holds many, and read again when they are needed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from search.local.packs.mapped_columns import Block, Column, MappedColumns, append_rows, map_columns
from search.local.packs.resident_pages import release_pages

ROWS, WIDTH = 2_000, 1_024
READ, KEPT = Column("read", "<f4", WIDTH), Column("kept", "<f4", WIDTH, scanned=True)
BYTES = 4 * ROWS * WIDTH

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is resident")


@pytest.fixture
def columns(tmp_path: Path) -> MappedColumns:
    values = np.random.default_rng(1).random((ROWS, WIDTH), np.float32)
    block = Block(ROWS, {"read": values, "kept": values}, {})
    append_rows(tmp_path / "pack", (READ, KEPT), 0, [block])
    mapped = map_columns(tmp_path / "pack", (READ, KEPT), ROWS)
    assert mapped is not None
    assert mapped.values["read"].sum() == mapped.values["kept"].sum()  # all pages are touched
    return mapped


def resident() -> int:
    return int(psutil.Process().memory_info().shared)


def test_pages_of_rows_are_released_and_those_of_scanned_columns_kept(
    columns: MappedColumns,
) -> None:
    before = resident()
    release_pages(most=0)
    released = before - resident()
    assert 0.9 * BYTES < released < 1.9 * BYTES
    assert np.array_equal(columns.values["read"], columns.values["kept"])


def test_few_pages_are_not_released(columns: MappedColumns) -> None:
    before = resident()
    release_pages(most=before + BYTES)
    assert before - resident() < 0.1 * BYTES
    assert len(columns.values["read"]) == ROWS
