"""The lexical engine of the embedded index: a main engine and its delta."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import PermanentError, TransientError
from search.local import main_delta_engine
from search.local.main_delta_engine import MainDeltaEngine
from search.local.tantivy_engine import EngineDocument, TantivyEngine
from search.protocol import TEXT_FIELDS, Filters

ANY = Filters()
_LIMIT = 100


@pytest.fixture(autouse=True)
def _small_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_delta_engine, "MAX_DELTA", 4)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[MainDeltaEngine]:
    engine = MainDeltaEngine(tmp_path / "terms", writable=True)
    yield engine
    engine.close()


def document(number: int, text: str = "", filters: Filters = ANY) -> EngineDocument:
    fields = [["kiln"], *([f"about{number}", *text.split()] for _ in TEXT_FIELDS[1:])]
    return EngineDocument(number, fields, filters)


def find(engine: MainDeltaEngine, term: str, filters: Filters = ANY) -> list[int]:
    return [number for number, _ in engine.search({term: 1.0}, _LIMIT, filters)]


def count_parts(folder: Path) -> list[int]:
    """Return the number of documents of the main engine and of the delta."""
    folders = (folder / "terms", folder / "terms-delta")
    return [TantivyEngine(each, writable=False).count() for each in folders]


def test_documents_are_found_before_and_after_they_move(
    engine: MainDeltaEngine, tmp_path: Path
) -> None:
    licensed = Filters(licence=("MIT", "Apache-2.0"), tool=("Bash",))
    for number in range(3):
        engine.write([document(number, "glaze", licensed)])
    assert count_parts(tmp_path) == [0, 3]
    before = engine.search({"glaze": 1.0, "about2": 1.0}, _LIMIT, licensed)
    assert {number for number, _ in before} == {0, 1, 2}
    assert before[0][0] == 2
    engine.write([document(3)])
    assert count_parts(tmp_path) == [4, 0]
    after = engine.search({"glaze": 1.0, "about2": 1.0}, _LIMIT, licensed)
    assert {number for number, _ in after} == {0, 1, 2}
    assert after[0][0] == 2
    assert find(engine, "glaze", Filters(licence=("GPL-3.0",))) == []
    assert engine.numbers() == {0, 1, 2, 3}
    assert engine.missing_numbers([2, 7, 3]) == [7]


def test_the_delta_is_scored_with_the_idf_of_the_main_engine(
    engine: MainDeltaEngine, tmp_path: Path
) -> None:
    texts = ["common rare", "common", "common", "common other"]
    engine.write([document(n, text) for n, text in enumerate(texts)])
    # Without the idf of the main engine "common" would be worth more than "rare" in the delta.
    engine.write([document(4, "common"), document(5, "rare"), document(6, "rare")])
    engine.delete_documents([6])
    assert count_parts(tmp_path) == [4, 2]
    scores = dict(engine.search({"common": 1.0, "rare": 1.0}, _LIMIT, ANY))
    assert scores[5] > scores[4]
    of_common = dict(engine.search({"common": 1.0}, _LIMIT, ANY))
    assert of_common[4] == pytest.approx(of_common[1], rel=0.15)  # mean lengths differ


@pytest.mark.parametrize("moved", [False, True])
def test_deleted_documents_are_not_found(engine: MainDeltaEngine, moved: bool) -> None:
    engine.write([document(number) for number in range(4 if moved else 3)])
    engine.write([document(9)])
    engine.delete_documents([1, 9, 77])
    assert find(engine, "kiln") == ([0, 2, 3] if moved else [0, 2])
    engine.rewrite([document(5)])
    assert find(engine, "kiln") == [5]


def test_a_rewrite_leaves_no_text(engine: MainDeltaEngine, tmp_path: Path) -> None:
    engine.write([document(number, "zirconium") for number in range(5)])
    engine.write([document(6, "zirconium")])
    engine.rewrite([document(1, "cobalt")])
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if b"zirconium" in file.read_bytes()]
    assert find(engine, "cobalt") == [1]


def test_a_move_that_fails_loses_nothing_and_is_repeated(
    engine: MainDeltaEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_engine: TantivyEngine, _documents: Sequence[EngineDocument]) -> None:
        raise TransientError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(TantivyEngine, "rewrite", fail)
        with pytest.raises(TransientError):
            engine.write([document(number) for number in range(4)])
    assert count_parts(tmp_path) == [4, 4]
    assert sorted(find(engine, "kiln")) == [0, 1, 2, 3]
    engine.delete_documents([2])
    assert sorted(find(engine, "kiln")) == [0, 1, 3]
    engine.write([document(8)])
    assert sorted(find(engine, "kiln")) == [0, 1, 3, 8]
    assert count_parts(tmp_path) == [4, 0]


def test_a_reader_of_an_index_without_a_delta(tmp_path: Path) -> None:
    older = TantivyEngine(tmp_path / "terms", writable=True)
    older.write([document(1)])
    older.close()
    reader = MainDeltaEngine(tmp_path / "terms", writable=False)
    assert find(reader, "kiln") == [1]
    with pytest.raises(PermanentError):
        reader.delete_documents([1])
    writer = MainDeltaEngine(tmp_path / "terms", writable=True)
    writer.write([document(2)])
    assert sorted(find(reader, "kiln")) == [1, 2]
    writer.close()
    reader.close()


def test_a_reader_misses_no_document_that_moves(tmp_path: Path) -> None:
    writer = MainDeltaEngine(tmp_path / "terms", writable=True)
    reader = MainDeltaEngine(tmp_path / "terms", writable=False)
    written = 0
    failed: list[object] = []
    stopped = threading.Event()

    def read() -> None:
        while not stopped.is_set():
            least = written
            found = find(reader, "kiln")
            if len(found) != len(set(found)) or not set(range(least)) <= set(found):
                failed.append((least, found))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for number in range(30):
            writer.write([document(number)])
            written = number + 1
    finally:
        stopped.set()
        thread.join()
    assert not failed
    writer.close()
    reader.close()


_STEPS = st.lists(
    st.tuples(st.booleans(), st.sets(st.integers(0, 11), min_size=1, max_size=5)), max_size=8
)


@given(_STEPS)
def test_it_holds_what_was_written_and_not_deleted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, set[int]]]
) -> None:
    engine = MainDeltaEngine(tmp_path_factory.mktemp("engine") / "terms", writable=True)
    expected: set[int] = set()
    for write, numbers in steps:
        if write:
            engine.write([document(number) for number in sorted(numbers)])
            expected |= numbers
        else:
            engine.delete_documents(numbers)
            expected -= numbers
        assert engine.numbers() == expected
        assert sorted(find(engine, "kiln")) == sorted(expected)
    engine.close()
