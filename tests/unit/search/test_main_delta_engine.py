"""The lexical engine of the embedded index: a main engine and its delta."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import PermanentError, TransientError
from search.local import main_delta_engine
from search.local.main_delta_engine import MainDeltaEngine
from search.local.tantivy_engine import MAX_QUERY_TERMS, EngineDocument, TantivyEngine
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
    return find_all(engine, {term: 1.0}, filters)


def find_all(
    engine: MainDeltaEngine, terms: Mapping[str, float], filters: Filters = ANY
) -> list[int]:
    return [number for number, _ in engine.search(terms, _LIMIT, filters)]


def count_parts(folder: Path) -> list[int]:
    """Return the number of documents of the main engine and of the delta."""
    folders = (folder / "terms", folder / "terms" / "delta")
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
    common, rare = "common text", "rare text"
    engine.write([document(n, common) for n in range(20)] + [document(20, rare)])
    engine.delete_documents(range(3, 18))
    engine.write([document(30, common), document(31, rare), document(32, rare)])
    engine.delete_documents([32])
    assert count_parts(tmp_path) == [6, 2]
    scores = dict(engine.search({"common": 1.0, "rare": 1.0}, _LIMIT, ANY))
    assert scores[30] == pytest.approx(scores[1], rel=1e-4)
    assert scores[31] == pytest.approx(scores[20], rel=0.3)  # two of the delta had it
    assert scores[31] > 2 * scores[30]


def test_of_many_terms_the_rarest_are_searched(engine: MainDeltaEngine) -> None:
    engine.write([document(n, "common text") for n in range(20)])
    engine.write([document(30, "common text"), document(31, "common new")])
    engine.delete_documents([31])
    absent = {f"absent{n}": 2.0 for n in range(MAX_QUERY_TERMS)}
    assert len(engine.search({**absent, "common": 1.0}, _LIMIT, ANY)) == 21
    assert find_all(engine, {**absent, "about30": 1.0, "about31": 1.0}) == [30]


def test_the_best_of_both_are_found(engine: MainDeltaEngine) -> None:
    engine.write([document(n, "text") for n in range(20)])
    engine.write([document(30, "text")])
    found = engine.search({"kiln": 1.0, "about30": 1.0, "about7": 1.0}, 2, ANY)
    assert {number for number, _ in found} == {7, 30}
    assert len(engine.search({"kiln": 1.0}, 5, ANY)) == 5


def test_an_unfinished_word_is_found_in_both(engine: MainDeltaEngine) -> None:
    for numbers in (range(20), range(30, 31)):
        engine.write([document(n)._replace(fields=[["kiln"]] * 5) for n in numbers])
    found = engine.search({}, _LIMIT, ANY, prefix="kil")
    assert {number for number, _ in found} == {*range(20), 30}


@pytest.mark.parametrize("moved", [False, True])
def test_deleted_documents_are_not_found(engine: MainDeltaEngine, moved: bool) -> None:
    engine.write([document(number) for number in range(4 if moved else 3)])
    engine.write([document(9)])
    engine.delete_documents([1, 9, 77])
    assert find(engine, "kiln") == ([0, 2, 3] if moved else [0, 2])
    engine.rewrite([document(5)])
    assert find(engine, "kiln") == [5]


def test_a_rewrite_leaves_no_text(
    engine: MainDeltaEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_delta_engine, "MAX_DELTA", 50)
    for number in range(9):  # merges begin at the eighth
        engine.write([document(number, "zirconium")])
    engine.delete_documents([8])
    engine.rewrite([document(1, "cobalt")])
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if b"zirconium" in file.read_bytes()]
    for folder in (tmp_path / "terms", tmp_path / "terms" / "delta"):
        meta = (folder / "meta.json").read_text()
        segments = {file.stem for file in folder.glob("*.store")}
        assert all(segment in meta.replace("-", "") for segment in segments)
    assert find(engine, "cobalt") == [1]


def test_a_rewritten_engine_deletes(tmp_path: Path) -> None:
    engine = TantivyEngine(tmp_path / "terms", writable=True)
    kept = [document(number) for number in range(6)]
    engine.write(kept)
    for number in range(6, 12):
        engine.write([document(number)])
        engine.delete_documents([number])
    engine.rewrite(kept)
    engine.delete_documents([2, 3])
    assert engine.numbers() == {0, 1, 4, 5}
    engine.close()


def test_a_move_that_fails_loses_nothing_and_is_repeated(
    engine: MainDeltaEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_engine: TantivyEngine, _documents: Sequence[EngineDocument]) -> None:
        raise TransientError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(TantivyEngine, "rewrite", fail)
        engine.write([document(number) for number in range(3)])
        with pytest.raises(TransientError):
            engine.write([document(3)])
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


def test_a_search_misses_no_document_that_moves(
    engine: MainDeltaEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documents move after the search of the first of the two engines."""
    engine.write([document(number) for number in range(5)])
    engine.write([document(number) for number in range(5, 8)])
    reader = MainDeltaEngine(tmp_path / "terms", writable=False)
    search, searched = TantivyEngine.search, []

    def search_then_move(one: TantivyEngine, *arguments: Any) -> list[tuple[int, float]]:
        found = search(one, *arguments)
        searched.append(one)
        if len(searched) == 1:
            engine.write([document(8)])
        return found

    monkeypatch.setattr(TantivyEngine, "search", search_then_move)
    assert sorted(find(reader, "kiln")) == [*range(9)]
    assert count_parts(tmp_path) == [9, 0]
    reader.close()


def test_a_reader_that_was_not_used_closes_whatever_the_delta_is(tmp_path: Path) -> None:
    MainDeltaEngine(tmp_path / "terms", writable=True).write([document(1)])
    (tmp_path / "terms" / "delta" / "meta.json").write_text("no JSON")
    reader = MainDeltaEngine(tmp_path / "terms", writable=False)
    reader.close()
    with pytest.raises(PermanentError, match="delete that folder"):
        find(reader, "kiln")


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "delete", "rewrite", "open again"]),
        st.sets(st.integers(0, 11), min_size=1, max_size=5),
    ),
    max_size=8,
)


@settings(max_examples=30)
@given(_STEPS)
def test_it_holds_what_was_written_and_not_deleted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, set[int]]]
) -> None:
    folder = tmp_path_factory.mktemp("engine") / "terms"
    engine = MainDeltaEngine(folder, writable=True)
    expected: set[int] = set()
    for step, numbers in steps:
        documents = [document(number) for number in sorted(numbers)]
        if step == "write":
            engine.write(documents)
            expected |= numbers
        elif step == "delete":
            engine.delete_documents(numbers)
            expected -= numbers
        elif step == "rewrite":
            engine.rewrite(documents)
            expected = numbers
        else:
            engine.close()
            engine = MainDeltaEngine(folder, writable=True)
        assert engine.numbers() == expected
        assert sorted(find(engine, "kiln")) == sorted(expected)
    engine.close()
