"""Records of candidates are the same wherever they come from, and after any kill."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.errors import PermanentError, TransientError
from search.completed_terms import widen
from search.local.index import LocalSearchIndex, index_identity
from search.local.local_records import LocalRecords
from search.local.packs.column_pack import PackWriter
from search.local.packs.forward_pack import forward_format
from search.local.revision_store import RevisionStore, read_identity
from search.packed_records import HashLists, PackedRecords
from search.protocol import SkillDocument
from search.scoring.library_statistics import LibraryStatistics
from search.scoring.record_source import MemoryRecords, RecordSource
from search.scoring.score_candidates import score_candidates
from search.text.query_understanding import understand
from skills.parsing.parse_skill import parse_skill
from skills.record import Completion, RevisionKey
from tests.support.samples.documents import make_document

MODEL, DIMENSION = "hashing:1", 4
COMPLETION = Completion("prompts", "m", 1, {"prompts": ("Clean the sluice",)})
ORIGINS = (COMPLETION.origin,)
WORDS = ("loom", "kiln", "tide", "glaze", "warp", "weft", "cone", "buoy", "oak", "elm")


def document(number: int) -> SkillDocument:
    """A skill with all that a record may have: every third states no uses, every fifth has words
    of a language model."""
    first, second, third = (WORDS[(number * step) % len(WORDS)] for step in (1, 3, 7))
    stated = f' when a user says "fix the {second}". Not for {third}.' if number % 3 else ""
    excluded = f"## When not to use\n\n- {third}\n" if number % 3 else ""
    body = f"# The {second}\n\n{f'{first} {third} ' * (number % 4)}\n\n{excluded}"
    name = f"{first}-{number}"
    parsed = parse_skill(
        name, f"---\nname: {name}\ndescription: Mends a {first}{stated}\n---\n{body}".encode()
    )
    if number % 5 == 0:
        parsed = parsed.with_completions((COMPLETION,))
    key = RevisionKey(f"home:{name}", number + 1)
    return make_document(key, parsed, vectors=np.full((2, DIMENSION), number + 1, dtype=np.float32))


DOCUMENTS = [document(number) for number in range(24)]
KEYS = [one.key for one in DOCUMENTS]
TASK = understand("fix the kiln and the oak, and clean the sluice")


def open_store(folder: Path, *, writable: bool = True) -> RevisionStore:
    identity = index_identity(MODEL, DIMENSION)
    return RevisionStore(folder / "revisions.sqlite", identity, writable=writable)


def open_index(folder: Path, *, writable: bool = True) -> LocalSearchIndex:
    return LocalSearchIndex(folder, MODEL, DIMENSION, writable=writable)


def assert_equal(left: PackedRecords, right: PackedRecords) -> None:
    for name in (field.name for field in fields(PackedRecords)):
        one, other = getattr(left, name), getattr(right, name)
        if isinstance(one, HashLists):
            assert one.values.tolist() == other.values.tolist(), name
            assert one.ends.tolist() == other.ends.tolist(), name
        elif isinstance(one, np.ndarray):
            assert one.dtype == other.dtype, name
            if name in ("counts", "lengths"):
                # One that has read a record with completions keeps their column.
                one, other = widen(one), widen(other)
            assert np.array_equal(one, other), name
        else:
            assert one == other, name


def assert_complete(store: RevisionStore, packs: Path, *readers: LocalRecords) -> None:
    """New and old readers find the records of all rows as the store has them."""
    keys = [key for key in reversed(KEYS) if key in store.row_numbers(KEYS)]
    for origins in ((), ORIGINS):
        expected = MemoryRecords(StoredRecords(store), origins)
        counted = LibraryStatistics(expected.read(keys))
        wanted = score_candidates(TASK, expected.pack(keys), counted)
        same = (one for one in readers if one._origins == frozenset(origins))
        for reader in (LocalRecords(store, packs, origins), *same):
            found = reader.pack(keys)
            assert sorted(found.keys) == sorted(keys)
            assert_equal(found, expected.pack(found.keys))
            statistics = LibraryStatistics(reader.read(keys))
            assert len(statistics) == len(counted) == len(keys)
            assert statistics.mean_lengths.tolist() == counted.mean_lengths.tolist()
            scored = score_candidates(TASK, found, statistics)
            assert scored.keys == wanted.keys
            assert scored.scores.tolist() == wanted.scores.tolist()


class StoredRecords(LocalSearchIndex):
    """The records of a store, read one by one."""

    def __init__(self, store: RevisionStore) -> None:
        self._store = store


class KilledError(BaseException):
    """Stands for a kill: nothing that would clean up runs."""


@contextmanager
def killed_after(calls: int) -> Iterator[None]:
    """Kill at the `calls`-th time that a pack is written to disk, recorded or tidied up."""
    left = calls

    def count(real: object) -> object:
        def call(*args: object, **options: object) -> object:
            nonlocal left
            if left == 0:
                raise KilledError
            left -= 1
            return real(*args, **options)  # type: ignore[operator]

        return call

    with (
        mock.patch.object(os, "fsync", count(os.fsync)),
        mock.patch.object(PackWriter, "_commit", count(PackWriter._commit)),
        mock.patch.object(shutil, "rmtree", count(shutil.rmtree)),
    ):
        yield


STEP = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 6)),
    st.tuples(st.just("delete"), st.integers(0, 23)),
    st.tuples(st.just("pack"), st.integers(0, 60)),
)


@settings(max_examples=12, deadline=None)
@given(st.lists(STEP, min_size=3, max_size=12))
@example([("add", 1), ("add", 1), ("delete", 0)])
def test_a_kill_at_any_point_leaves_all_records(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("index")
    packs, waiting = folder / "packs", list(DOCUMENTS)
    with closing(open_store(folder)) as store, closing(open_store(folder)) as other:
        readers = [LocalRecords(other, packs, origins) for origins in ((), ORIGINS)]
        for what, number in steps:
            if what == "add":
                store.insert(waiting[:number])
                del waiting[:number]
            elif what == "delete":
                store.delete(list(store.row_numbers([KEYS[number]]).values()))
            else:
                writer = PackWriter(store, packs, forward_format())
                with suppress(KilledError), killed_after(number):
                    writer.write_if_due(1)
            assert_complete(store, packs, *readers)
        PackWriter(store, packs, forward_format()).write_if_due(1)
        assert_complete(store, packs, *readers)


@pytest.fixture
def packed(tmp_path: Path) -> Iterator[tuple[RevisionStore, Path]]:
    """A store whose rows are all packed, and the folder of its packs."""
    with closing(open_store(tmp_path)) as store:
        store.insert(DOCUMENTS)
        PackWriter(store, tmp_path / "packs", forward_format()).write_if_due(1)
        yield store, tmp_path / "packs"


def folders(packs: Path) -> list[str]:
    return sorted(path.name for path in packs.iterdir())


def test_a_pack_is_written_anew_when_much_was_deleted(packed: tuple[RevisionStore, Path]) -> None:
    store, packs = packed
    reader, before = LocalRecords(store, packs), folders(packs)
    assert reader.pack(KEYS).keys == tuple(KEYS)
    mapped = reader._pack
    assert mapped is not None
    store.delete(list(store.row_numbers(KEYS[:6]).values()))
    PackWriter(store, packs, forward_format()).write_if_due(1)
    assert folders(packs) == before
    store.delete(list(store.row_numbers(KEYS[6:8]).values()))
    PackWriter(store, packs, forward_format()).write_if_due(1)
    assert len(folders(packs)) == 1
    assert folders(packs) != before
    assert_complete(store, packs, reader)
    # What a process has mapped stays readable, also after the files are gone.
    records = mapped.pack(KEYS, mapped.find(KEYS))
    assert np.array_equal(
        records.terms.values, np.concatenate([d.forward.terms for d in DOCUMENTS])
    )


@pytest.mark.parametrize("damage", ["missing", "short", "version"])
def test_a_pack_that_cannot_be_used_is_made_again(
    packed: tuple[RevisionStore, Path], damage: str
) -> None:
    store, packs = packed
    (folder,) = packs.iterdir()
    if damage == "missing":
        (folder / "terms").unlink()
    elif damage == "short":
        path = folder / "counts"
        path.write_bytes(path.read_bytes()[:-1])
    else:
        with store.write_transaction() as connection:
            connection.execute("UPDATE packs SET version = '0'")
    assert_complete(store, packs)
    PackWriter(store, packs, forward_format()).write_if_due(1)
    assert folders(packs) != [folder.name]
    assert LocalRecords(store, packs).pack(KEYS).keys == tuple(KEYS)
    with mock.patch.object(RevisionStore, "columns", side_effect=AssertionError):
        LocalRecords(store, packs).pack(KEYS)


def test_a_full_disk_is_reported_and_harms_nothing(packed: tuple[RevisionStore, Path]) -> None:
    store, packs = packed
    with store.write_transaction() as connection:
        connection.execute("DELETE FROM packs")
    writer = PackWriter(store, packs, forward_format())
    full = mock.patch.object(os, "fsync", side_effect=OSError(28, "No space left on device"))
    with full, pytest.raises(TransientError, match="cannot be written"):
        writer.write_if_due(1)
    assert_complete(store, packs)


def test_the_index_packs_what_is_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search.local.index._MAX_UNPACKED", 10)
    monkeypatch.setattr("search.local.index._MIN_PACKED", 3)

    def count_packed() -> int:
        with closing(open_store(tmp_path, writable=False)) as store, store.read_connection() as db:
            return sum(
                rows for (rows,) in db.execute("SELECT rows FROM packs WHERE name = 'forward'")
            )

    with closing(open_index(tmp_path)) as index:
        index.add(DOCUMENTS[:9])
        assert count_packed() == 0
        index.add(DOCUMENTS[9:10])
        assert count_packed() == 10
        index.add(DOCUMENTS[10:12])
    assert count_packed() == 10
    with closing(open_index(tmp_path)) as index:
        index.add(DOCUMENTS[12:13])
        index.close()  # closing it again does nothing
    assert count_packed() == 13
    with closing(open_index(tmp_path, writable=False)) as index:
        assert index.open_records().pack(KEYS).keys == tuple(KEYS[:13])


def test_records_stay_readable_for_a_while(tmp_path: Path) -> None:
    with closing(open_index(tmp_path)) as index:
        index.add(DOCUMENTS[:2])
        sources: list[tuple[RecordSource, list[RevisionKey]]] = [
            (index.open_records(keep_seconds=60), KEYS[:1]),
            (MemoryRecords(index, keep_seconds=60), KEYS[:1]),
            (index.open_records(), []),
            (MemoryRecords(index), []),
        ]
        for source, _ in sources:
            assert [len(some) for some in source.read(KEYS)] == [2]
        index.delete(KEYS[:1])
        for source, readable in sources:
            source.release(KEYS[:1])
            source.release([])
            assert source.pack(KEYS[:1]).keys == tuple(readable)
            assert source.pack(KEYS).keys == (*readable, KEYS[1])


def test_records_that_another_thread_drops_for_a_newer_pack_are_found(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store, closing(open_store(tmp_path)) as other:
        packs = tmp_path / "packs"
        store.insert(DOCUMENTS)
        reader = LocalRecords(other, packs)
        keep = reader._kept.keep

        def pack_meanwhile(records: PackedRecords) -> None:
            keep(records)
            PackWriter(store, packs, forward_format()).write_if_due(1)
            reader.refresh()

        with mock.patch.object(reader._kept, "keep", pack_meanwhile):
            assert sorted(reader.pack(KEYS).keys) == sorted(KEYS)
        assert_complete(store, packs, reader)


def test_a_read_during_which_the_index_is_closed_does_not_call_it_damaged(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    def read() -> None:
        with store.read_connection() as connection:
            store.close()
            connection.execute("SELECT COUNT(*) FROM revisions")

    with pytest.raises(PermanentError, match="has been closed"):
        read()


def test_a_wrong_statement_is_not_called_damage(tmp_path: Path) -> None:
    with (
        closing(open_store(tmp_path)) as store,
        pytest.raises(sqlite3.ProgrammingError, match="not supported"),
        store.read_connection() as connection,
    ):
        connection.execute("SELECT ?", ({},))


@pytest.mark.parametrize("name", ["c#", "what?", "100%41"])
def test_the_identity_is_read_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    open_store(tmp_path / name).close()
    assert read_identity(tmp_path / name) == index_identity(MODEL, DIMENSION)


def test_the_identity_of_a_store_is_its_own(tmp_path: Path) -> None:
    found = set()
    for name in ("one", "other"):
        with closing(open_store(tmp_path / name)) as store:
            first = store.identity()
        with closing(open_store(tmp_path / name)) as store:
            assert store.identity() == first
        found.add(first)
    assert len(found) == 2
    assert None not in found


def test_hubness_is_of_the_version(packed: tuple[RevisionStore, Path]) -> None:
    store, packs = packed
    changed = replace(forward_format(), version="other")
    with mock.patch("search.local.forward_pack_follower.forward_format", return_value=changed):
        reader = LocalRecords(store, packs)
        assert reader.pack(KEYS[:3]).keys == tuple(KEYS[:3])
        assert reader._pack is None
