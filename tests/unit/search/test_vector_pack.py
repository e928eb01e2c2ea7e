"""Searches by vector find the same whether vectors are mapped or in memory."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.local.index import LocalSearchIndex
from search.local.packs.column_pack import PackWriter
from search.protocol import Filters, SkillDocument
from skills.parsing.parse_skill import parse_skill
from skills.record import ParsedSkill, RevisionKey
from tests.support.samples.documents import make_document
from tests.support.samples.searches import search_vectors

MODEL, DIMENSION = "hashing:1", 8
SOURCES = ("home", "team")


def unit(seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(2, DIMENSION)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def document(number: int) -> SkillDocument:
    name = f"loom-{number}"
    # Each text has a vector of its own: those of the same text are stored once.
    text = f"---\nname: {name}\ndescription: Warps {number}\n---\nWarp it {number} times.\n"
    parsed = parse_skill(name, text.encode())
    key = RevisionKey(f"{SOURCES[number % 2]}:{name}", number + 1)
    return make_document(key, parsed, filters=Filters(source=(SOURCES[number % 2],)))


DOCUMENTS = [document(number) for number in range(12)]
KEYS = [one.key for one in DOCUMENTS]
VECTORS = {key: unit(number) for number, key in enumerate(KEYS)}
STEPS = st.lists(
    st.tuples(st.sampled_from(("save", "delete", "reopen")), st.sets(st.sampled_from(KEYS))),
    max_size=8,
)


def open_index(folder: Path, *, writable: bool = True) -> LocalSearchIndex:
    return LocalSearchIndex(folder, MODEL, DIMENSION, writable=writable)


def check(index: LocalSearchIndex, present: Sequence[RevisionKey]) -> None:
    """The index answers as a comparison with every stored vector does."""
    stored = index.get_skill_vectors(KEYS)
    assert set(stored) == set(present)
    assert all(np.array_equal(stored[key], VECTORS[key]) for key in present)
    pairs = index.get_skill_cosines(KEYS, unit(99)[0])
    assert set(pairs) == set(present)
    assert all(np.allclose(pairs[key], VECTORS[key] @ unit(99)[0], atol=1e-6) for key in present)
    for field in (0, 1):
        for filters in (Filters(), Filters(source=("team",))):
            asked = unit(99)[field]
            passing = [key for key in present if not filters.source or "team:" in key.skill_id]
            cosines = {key: float(VECTORS[key][field] @ asked) for key in passing}
            wanted = sorted((-cosine, key) for key, cosine in cosines.items() if cosine > 0)
            found = search_vectors(index, asked, field, 5, filters)
            assert [hit.key for hit in found] == [key for _, key in wanted[:5]]
            assert np.allclose([hit.score for hit in found], [-one for one, _ in wanted[:5]])


@settings(max_examples=12, deadline=None)
@given(STEPS)
def test_mapped_and_recent_vectors_answer_as_all_in_memory(
    steps: list[tuple[str, set[RevisionKey]]],
) -> None:
    with (
        TemporaryDirectory() as folder,
        mock.patch("search.local.index._MAX_UNPACKED", 3),
        mock.patch("search.local.index._MIN_PACKED", 1),
    ):
        index = open_index(Path(folder))
        index.add(DOCUMENTS)
        there, present = set(KEYS), set[RevisionKey]()
        with closing(open_index(Path(folder), writable=False)) as reader:
            for action, keys in steps:
                if action == "save":
                    index.save_skill_vectors({key: VECTORS[key] for key in sorted(keys)})
                    present |= keys & there
                elif action == "delete":
                    index.delete(sorted(keys))
                    there -= keys
                    present -= keys
                else:
                    index.close()
                    index = open_index(Path(folder))
                check(index, sorted(present))
                check(reader, sorted(present))
        index.close()


def test_without_files_the_vectors_are_read_from_the_store(tmp_path: Path) -> None:
    with (
        mock.patch("search.local.index._MIN_PACKED", 1),
        closing(open_index(tmp_path)) as index,
    ):
        index.add(DOCUMENTS)
        index.save_skill_vectors(VECTORS)
        index.close()
    (pack,) = (tmp_path / "packs").glob("vectors-*")
    assert (pack / "described").stat().st_size == len(KEYS) * DIMENSION * 4
    shutil.rmtree(pack)
    with closing(open_index(tmp_path, writable=False)) as index:
        check(index, KEYS)


def test_codes_find_the_nearest_of_many(tmp_path: Path) -> None:
    count, dimension, rng = 1_200, 64, np.random.default_rng(3)
    topics = rng.normal(size=(40, dimension))
    rows = topics[rng.integers(40, size=(count, 2))] + 0.8 * rng.normal(size=(count, 2, dimension))
    rows = np.asarray(rows / np.linalg.norm(rows, axis=2, keepdims=True), dtype=np.float32)
    first = DOCUMENTS[0].parsed

    def parsed_alike(number: int) -> ParsedSkill:
        """The first skill with texts of its own, without the time that parsing takes."""
        record = replace(first.record, description=f"Warps {number}")
        return replace(first, record=record, lines=(*first.lines[:-1], f"Warp it {number} times."))

    documents = [
        replace(
            DOCUMENTS[0],
            key=RevisionKey(f"home:{n}", n + 1),
            parsed=parsed_alike(n),
            vectors=pair,
        )
        for n, pair in enumerate(rows)
    ]
    with closing(LocalSearchIndex(tmp_path, MODEL, dimension, writable=True)) as index:
        index.add(documents)
    exact_rows = mock.patch("search.local.vector_matrix.EXACT_ROWS", 150)
    with exact_rows, closing(LocalSearchIndex(tmp_path, MODEL, dimension, writable=False)) as index:
        for field in (0, 1):
            asked = rows[7, field]
            cosines = rows[:, field] @ asked
            found = search_vectors(index, asked, field, 20, Filters())
            nearest = {f"home:{n}" for n in np.argsort(-cosines)[:20].tolist()}
            assert len(nearest & {hit.key.skill_id for hit in found}) >= 18
            exact = [float(cosines[int(hit.key.skill_id.removeprefix("home:"))]) for hit in found]
            assert np.allclose([hit.score for hit in found], exact, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 40, 400])
def test_a_pack_whose_constants_a_power_cut_damaged_is_made_again(
    tmp_path: Path, size: int
) -> None:
    with (
        mock.patch("search.local.index._MAX_UNPACKED", 3),
        mock.patch("search.local.index._MIN_PACKED", 1),
    ):
        with closing(open_index(tmp_path)) as index:
            index.add(DOCUMENTS)
            index.save_skill_vectors(VECTORS)
        (path,) = tmp_path.glob("packs/vectors-*/constants.npz")
        path.write_bytes(path.read_bytes()[:size])
        for writable in (False, True, False):
            with closing(open_index(tmp_path, writable=writable)) as index:
                check(index, KEYS)
    (fresh,) = tmp_path.glob("packs/vectors-*/constants.npz")
    assert fresh != path


def test_files_of_a_pack_that_was_not_recorded_are_deleted_with_the_rows(tmp_path: Path) -> None:
    def end(*_: object) -> None:
        raise SystemExit

    with mock.patch("search.local.index._MAX_UNPACKED", 3), closing(open_index(tmp_path)) as index:
        index.add(DOCUMENTS)
        with mock.patch.object(PackWriter, "_commit", end), pytest.raises(SystemExit):
            index.save_skill_vectors(VECTORS)
        assert list(tmp_path.glob("packs/vectors-*/described"))
        index.delete(KEYS)
        index.overwrite_deleted()
        assert not list(tmp_path.glob("packs/*"))
