"""The statistics of the library are those of the published revisions, however they came about."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import TransientError
from graph.local.store import SqliteSkillGraph
from graph.records import Publication, Source
from search.local.index import LocalSearchIndex
from search.packed_records import pack_records
from search.protocol import SkillDocument
from search.scoring.library_statistics import LibraryStatistics
from search.scoring.record_source import MemoryRecords, RecordSource
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tasks.query.process_state import published_library, saved_library
from tasks.query.process_state.circuit_breaker import CircuitBreakers
from tasks.query.process_state.published_library import PublishedLibrary
from tasks.query.process_state.saved_library import SavedLibraryFile
from tests.support.samples.documents import make_document

MODEL, DIMENSION = "hashing:1", 4
WORDS = ("loom", "kiln", "tide", "glaze", "warp", "weft", "cone", "buoy")


@cache
def document(skill_id: str, seq: int) -> SkillDocument:
    words = [WORDS[(len(skill_id) + seq * step) % len(WORDS)] for step in (1, 3)]
    text = f"---\nname: {words[0]}\ndescription: Mends a {words[1]}\n---\n{' '.join(words * seq)}\n"
    parsed = parse_skill(skill_id, text.encode())
    vectors = np.ones((2, DIMENSION), dtype=np.float32)
    return make_document(RevisionKey(skill_id, seq), parsed, vectors=vectors)


class Home:
    """A catalog and an index in a folder, and the saved statistics of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.graph = SqliteSkillGraph(folder / "graph.db", writable=True)
        self.index = LocalSearchIndex(folder / "index", MODEL, DIMENSION, writable=True)
        self.graph.save_source(Source("home", "directory", "/home", 0.0))
        self.path = folder / "statistics"

    def open_library(self, records: RecordSource | None = None) -> PublishedLibrary:
        """The library of a new process."""
        identity = f"{self.graph.identity} {self.index.get_identity()}"
        saved = SavedLibraryFile(self.path, identity)
        return PublishedLibrary(
            self.graph, records or self.index.open_records(keep_seconds=30), saved=saved
        )

    def publish(self, names: Sequence[str]) -> list[RevisionKey]:
        """Publish new revisions; returns those that they supersede."""
        before = self.graph.get_changes_since(0).pointers
        seqs = self.graph.allocate_sequence(len(names))
        documents = [document(f"home:{name}", seq) for name, seq in zip(names, seqs, strict=True)]
        self.index.add(documents)
        self.graph.publish(
            [
                Publication(one.key, "home", one.key.skill_id, "hash", one.key.skill_id, "")
                for one in documents
            ]
        )
        found = ((one.key.skill_id, before.get(one.key.skill_id)) for one in documents)
        return [RevisionKey(name, seq) for name, seq in found if seq]

    def remove(self, name: str) -> list[RevisionKey]:
        """Withdraw a skill and forget that there was one; returns its revision."""
        skill_id = f"home:{name}"
        seq = self.graph.get_changes_since(0).pointers.get(skill_id)
        self.graph.remove([RevisionKey(skill_id, self.graph.allocate_sequence(1)[0])])
        self.graph.prune_removed(-60.0)
        return [RevisionKey(skill_id, seq)] if seq else []

    def assert_whole(self, library: PublishedLibrary) -> None:
        """The statistics are over the published revisions, no others."""
        snapshot = library.refresh()
        published = {
            name: seq for name, seq in self.graph.get_changes_since(0).pointers.items() if seq
        }
        assert dict(snapshot.pointers) == published
        keys = [RevisionKey(name, seq) for name, seq in published.items()]
        records = self.index.get_forward_records(keys)
        assert len(records) == len(keys)
        expected = LibraryStatistics([pack_records(records)])
        assert len(snapshot.statistics) == len(expected)
        assert snapshot.statistics.mean_lengths.tolist() == expected.mean_lengths.tolist()
        for counts in ("document_frequencies", "name_frequencies"):
            terms = np.unique(np.concatenate([[1], *(one.terms for one in records.values())]))
            terms = terms.astype(np.uint64)
            found, wanted = (getattr(one, counts)(terms) for one in (snapshot.statistics, expected))
            assert found.tolist() == wanted.tolist()
        assert library.records.pack(keys).keys == tuple(keys)

    def close(self) -> None:
        self.graph.close()
        self.index.close()


@pytest.fixture(autouse=True)
def _save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_library, "_MIN_UNSAVED", 1)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.sampled_from("abcdef"), min_size=1, unique=True)),
        st.tuples(st.just("remove"), st.sampled_from("abcdef")),
        st.tuples(st.sampled_from(["start", "refresh", "save", "sweep"]), st.none()),
    ),
    min_size=4,
    max_size=14,
)


@pytest.mark.parametrize("many", [0, 1_000])
@settings(max_examples=15, deadline=None)
@given(steps=STEPS)
def test_the_statistics_follow_the_catalog(
    tmp_path_factory: pytest.TempPathFactory, many: int, steps: list[tuple[str, object]]
) -> None:
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(published_library, "_MANY_CHANGES", many))
        stack.enter_context(mock.patch.object(published_library, "_MIN_UNSAVED", 1))
        home = stack.enter_context(closing(Home(tmp_path_factory.mktemp("home"))))
        libraries = [home.open_library(), home.open_library(MemoryRecords(home.index, (), 30))]
        superseded: list[RevisionKey] = []
        for what, given_ in steps:
            if what == "publish":
                superseded += home.publish([str(name) for name in given_])  # type: ignore[attr-defined]
            elif what == "remove":
                superseded += home.remove(str(given_))
            elif what == "start":
                libraries.append(home.open_library())
            elif what == "save":
                libraries[0].save()
            elif what == "sweep":
                home.index.delete(superseded)
            else:
                for library in libraries[:2]:
                    library.refresh()
        # The second one's changes since its last refresh may hold a skill that was forgotten.
        for library in (libraries[0], *libraries[2:], home.open_library()):
            if what_is_known(library, home):
                home.assert_whole(library)
        libraries[0].save()
        home.assert_whole(home.open_library())


def what_is_known(library: PublishedLibrary, home: Home) -> bool:
    """Whether no skill was forgotten that the library still has: it would count anew in a day."""
    published = home.graph.get_changes_since(0).pointers
    return all(name in published for name in library.latest.pointers)


def count_reads(library: PublishedLibrary) -> int:
    """How many records the library reads to start."""
    records = library.records
    with mock.patch.object(records, "read", wraps=records.read) as read:
        library.refresh()
    return sum(len(call.args[0]) for call in read.call_args_list)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_a_saved_library_is_not_counted_again(home: Home) -> None:
    home.publish("abcdef")
    home.open_library().save()
    assert count_reads(home.open_library()) == 0
    home.publish("ab")
    started = home.open_library()
    assert count_reads(started) == 4  # the new ones and those that they supersede
    home.assert_whole(started)
    home.close()


def test_a_saved_library_misses_no_skill_that_was_forgotten(home: Home) -> None:
    home.publish("abc")
    home.open_library().save()
    home.remove("b")
    started = home.open_library()
    home.assert_whole(started)
    assert "home:b" not in started.latest.pointers
    home.close()


def test_few_changes_are_not_saved(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_library, "_MIN_UNSAVED", 3)
    library = home.open_library()
    home.publish("ab")
    library.save()
    assert not home.path.exists()
    home.publish("a")
    library.save()
    first = home.path.read_bytes()
    home.publish("a")
    library.save()
    assert home.path.read_bytes() == first
    home.close()


@pytest.mark.parametrize("damage", ["short", "empty", "text", "other", "format"])
def test_a_file_that_cannot_be_used_is_counted_again(
    home: Home, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.publish("abc")
    home.open_library().save()
    if damage == "short":
        home.path.write_bytes(home.path.read_bytes()[:-70])
    elif damage == "empty":
        home.path.write_bytes(b"")
    elif damage == "text":
        home.path.write_text("The first bytes of a text are a very large number.\n")
    elif damage == "other":
        SavedLibraryFile(home.path, "another").save(
            saved_library.SavedLibrary(1, {}, LibraryStatistics())
        )
    else:
        monkeypatch.setattr(saved_library, "_FORMAT", 0)
    started = home.open_library()
    assert count_reads(started) == 3
    home.assert_whole(started)
    home.close()


def test_another_catalog_or_index_has_another_identity(home: Home) -> None:
    home.publish("abc")
    home.open_library().save()
    home.close()
    (home.folder / "graph.db").unlink()
    again = Home(home.folder)
    again.graph.allocate_sequence(10)  # as a writing process does, whose index has higher numbers
    again.publish("ad")
    started = again.open_library()
    assert count_reads(started) == 2
    again.assert_whole(started)
    again.close()


def test_a_catalog_that_was_restored_from_a_backup(home: Home) -> None:
    home.publish("abc")
    home.close()
    shutil.copy(home.folder / "graph.db", home.folder / "backup.db")
    home = Home(home.folder)
    home.publish("abd")
    home.open_library().save()
    home.close()
    shutil.copy(home.folder / "backup.db", home.folder / "graph.db")
    home = Home(home.folder)
    started = home.open_library()
    assert count_reads(started) == 3  # it is newer than the catalog
    home.assert_whole(started)
    home.open_library().drop_newer_saved()
    assert not home.path.exists()
    for _ in range(3):
        home.publish("ae")
    home.assert_whole(home.open_library())
    home.close()


def test_a_reload_during_an_outage_keeps_the_library(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.publish("abc")
    library = PublishedLibrary(
        home.graph, home.index.open_records(keep_seconds=30), CircuitBreakers()
    )
    before = library.refresh()
    monkeypatch.setattr(published_library, "_FULL_RELOAD_SECONDS", 0.0)
    down = mock.patch.object(home.graph, "get_changes_since", side_effect=TransientError("down"))
    with down:
        found = library.refresh()
    assert found.error is not None
    assert found.pointers == library.latest.pointers == before.pointers
    assert len(found.statistics) == 3
    assert library.epoch
    home.close()


@pytest.mark.parametrize("gone", [False, True])
def test_a_library_that_is_counted_anew_keeps_no_superseded_record(
    home: Home, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.publish("abc")
    records = MemoryRecords(home.index)
    library = home.open_library(records)
    library.refresh()
    first, second = home.publish("ab")
    if gone:  # so that the statistics cannot be corrected
        records._kept.drop([first])
        home.index.delete([first])
    else:
        monkeypatch.setattr(published_library, "_FULL_RELOAD_SECONDS", 0.0)
    home.assert_whole(library)
    records.release([])  # a later call removes what is marked
    assert second not in records._kept.list_keys()
    assert len(records._kept.list_keys()) == 3
    home.close()


def test_a_full_disk_is_reported(home: Home) -> None:
    home.publish("abc")
    library = home.open_library()
    full = mock.patch("os.fsync", side_effect=OSError(28, "No space left on device"))
    with full, pytest.raises(TransientError, match="cannot be written"):
        library.save()
    assert not home.path.exists()
    library.save()
    assert count_reads(home.open_library()) == 0
    home.close()


def test_a_revision_without_a_record_is_not_counted(home: Home) -> None:
    home.publish("abc")
    pointers = home.graph.get_changes_since(0).pointers
    home.index.delete([RevisionKey("home:b", pointers["home:b"])])
    library = home.open_library()
    assert len(library.refresh().statistics) == 2
    library.save()  # it would be missing for ever
    assert not home.path.exists()
    home.publish("b")
    home.assert_whole(library)
    home.close()
