from __future__ import annotations

import sys
from collections.abc import Sequence
from mmap import PAGESIZE
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.local.packs.mapped_columns import Block, Column, MappedColumns, append_rows, map_columns
from search.process_memory import return_memory

COLUMNS = (
    Column("number", "<i8"),
    Column("pair", "<f4", 2),
    Column("terms", "<u8", lists="terms"),
    Column("counts", "<u1", 3, lists="terms"),
    Column("letters", "<u1", lists="letters"),
)
Rows = list[tuple[int, list[int], bytes]]
ROWS = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        st.lists(st.integers(0, 2**64 - 1), max_size=4),
        st.binary(max_size=3),
    ),
    max_size=6,
)


def block(rows: Rows) -> Block:
    numbers = np.array([number for number, _, _ in rows], dtype=np.int64)
    terms = np.array([term for _, some, _ in rows for term in some], dtype=np.uint64)
    return Block(
        len(rows),
        {
            "number": numbers,
            "pair": np.stack([numbers, -numbers], axis=1) / 2,
            "terms": terms,
            "counts": (terms[:, None] % np.array([2, 3, 5], dtype=np.uint64)),
            "letters": np.frombuffer(b"".join(text for *_, text in rows), dtype=np.uint8),
        },
        {
            "terms": np.array([len(some) for _, some, _ in rows], dtype=np.int64),
            "letters": np.array([len(text) for *_, text in rows], dtype=np.int64),
        },
    )


def read(mapped: MappedColumns) -> Rows:
    values, found = mapped.values, []
    places = np.arange(mapped.rows)
    starts, ends = mapped.bounds("terms", places)
    firsts, lasts = mapped.bounds("letters", places)
    for at in range(mapped.rows):
        number = int(values["number"][at])
        assert values["pair"][at].tolist() == [np.float32(number / 2), np.float32(-number / 2)]
        terms = values["terms"][starts[at] : ends[at]]
        counts = values["counts"][starts[at] : ends[at]]
        assert counts.tolist() == [[term % n for n in (2, 3, 5)] for term in terms.tolist()]
        letters = values["letters"][firsts[at] : lasts[at]].tobytes()
        found.append((number, terms.tolist(), letters))
    return found


def must_map(folder: Path, rows: int) -> MappedColumns:
    mapped = map_columns(folder, COLUMNS, rows)
    assert mapped is not None
    return mapped


@settings(max_examples=20, deadline=None)
@given(st.lists(ROWS, max_size=4), ROWS)
def test_what_was_appended_is_mapped(
    tmp_path_factory: pytest.TempPathFactory, blocks: Sequence[Rows], lost: Rows
) -> None:
    folder, written = tmp_path_factory.mktemp("columns") / "pack", Rows()
    maps: list[tuple[MappedColumns, Rows]] = []
    for rows in blocks:
        # One that was not recorded is overwritten by the next.
        append_rows(folder, COLUMNS, len(written), [block(lost)])
        total = append_rows(folder, COLUMNS, len(written), [block(rows), block(rows)])
        written = [*written, *rows, *rows]
        assert total == len(written)
        maps.append((must_map(folder, total), list(written)))
    # Appending changes none of the rows that were mapped before.
    for mapped, expected in maps:
        assert read(mapped) == expected


def test_files_that_are_missing_or_short_are_not_mapped(tmp_path: Path) -> None:
    rows: Rows = [(1, [5, 7], b"ab"), (2, [], b""), (3, [9], b"c")]
    for name in ("number", "pair", "terms", "counts", "letters", "terms.ends", "letters.ends"):
        folder = tmp_path / name
        assert append_rows(folder, COLUMNS, 0, [block(rows)]) == 3
        assert read(must_map(folder, 3)) == rows
        path = folder / name
        path.write_bytes(path.read_bytes()[:-1])
        assert map_columns(folder, COLUMNS, 3) is None
        path.unlink()
        assert map_columns(folder, COLUMNS, 3) is None


def test_an_append_that_fails_leaves_the_rows_before(tmp_path: Path) -> None:
    rows: Rows = [(1, [5, 7], b"ab"), (2, [], b"")]
    folder = tmp_path / "pack"
    append_rows(folder, COLUMNS, 0, [block(rows)])
    with pytest.raises(KeyError):
        append_rows(folder, COLUMNS, 2, [block(rows), Block(1, {}, {})])
    assert read(must_map(folder, 2)) == rows
    assert append_rows(folder, COLUMNS, 2, [block(rows)]) == 4
    assert read(must_map(folder, 4)) == [*rows, *rows]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_are_unmapped_until_they_are_read_again(tmp_path: Path) -> None:
    columns, number = COLUMNS[:1], np.arange(100_000)
    append_rows(tmp_path, columns, 0, [Block(len(number), {"number": number}, {})])
    mapped = map_columns(tmp_path, columns, len(number))
    assert mapped is not None
    before = int(mapped.values["number"].sum())
    assert resident_bytes(tmp_path / "number") == number.nbytes // PAGESIZE * PAGESIZE + PAGESIZE
    return_memory()
    assert resident_bytes(tmp_path / "number") == 0
    assert int(mapped.values["number"].sum()) == before


def resident_bytes(path: Path) -> int:
    """How much of a mapped file this process has in its memory."""
    lines = iter(Path("/proc/self/smaps").read_text("utf-8").splitlines())
    for line in lines:
        if line.endswith(str(path)):
            resident = next(one for one in lines if one.startswith("Rss:"))
            return int(resident.split()[1]) * 1024
    raise AssertionError(f"{path} is not mapped")
