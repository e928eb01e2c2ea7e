"""Sections in memory: what binary codes find of the exact neighbours, and following of changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from search.binary_codes import BinaryCodes
from search.local.index import LocalSearchIndex
from search.protocol import Filters, SectionSearch, SkillDocument
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tests.support.samples.documents import make_document

DIMENSION = 96
SECTIONS = 25
EXACT_ROWS = 1_000
SKILLS = 2 * EXACT_ROWS // SECTIONS


def vectors_around(topics: np.ndarray, seed: int, count: int) -> np.ndarray:
    """Unit vectors near topics, all of them on one side, as those of some encoders are."""
    rng = np.random.default_rng(seed)
    rows = topics[rng.integers(len(topics), size=count)] + 0.8 * rng.normal(size=(count, DIMENSION))
    rows = rows + 3.0 * np.ones(DIMENSION)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def document(number: int, seq: int, template: SkillDocument) -> SkillDocument:
    hashes = tuple(f"{number:06}{seq:04}{n:06}".encode() for n in range(SECTIONS))
    source = "even" if number % 2 == 0 else "odd"
    return replace(
        template,
        key=RevisionKey(f"{source}:{number}", seq),
        section_hashes=hashes,
        filters=Filters(source=(source,)),
    )


@pytest.fixture(scope="module")
def template() -> SkillDocument:
    parsed = parse_skill("loom", b"---\nname: loom\ndescription: Warps\n---\nWarp it.\n")
    vectors = np.eye(2, DIMENSION, dtype=np.float32)
    return make_document(RevisionKey("home:loom", 1), parsed, vectors=vectors)


@pytest.fixture(scope="module")
def topics() -> np.ndarray:
    return np.random.default_rng(5).normal(size=(60, DIMENSION))


class Library:
    """An index of SKILLS skills, with the vectors that it should find."""

    def __init__(self, folder: Path, template: SkillDocument, topics: np.ndarray) -> None:
        self.index = LocalSearchIndex(folder, "m", DIMENSION, writable=True)
        self.template, self.topics = template, topics
        self.vectors: dict[RevisionKey, np.ndarray] = {}

    def add(self, numbers: range, seq: int) -> None:
        documents = [document(number, seq, self.template) for number in numbers]
        self.index.add(documents)
        for number, one in zip(numbers, documents, strict=True):
            vectors = vectors_around(self.topics, 100 * number + seq, SECTIONS)
            self.index.save_section_vectors(one.key, one.section_hashes, vectors)
            self.vectors[one.key] = vectors

    def delete(self, keys: list[RevisionKey]) -> None:
        self.index.delete(keys)
        for key in keys:
            del self.vectors[key]

    def nearest(self, query: np.ndarray, limit: int, source: str = "") -> list[RevisionKey]:
        best = {
            key: float((rows @ query).max())
            for key, rows in self.vectors.items()
            if key.skill_id.startswith(source)
        }
        return sorted(best, key=lambda key: -best[key])[:limit]

    def overlap(self, query: np.ndarray, limit: int, source: str = "") -> float:
        filters = Filters(source=(source,)) if source else Filters()
        found = self.index.search_many([SectionSearch(query, limit, filters)])[0]
        assert len({hit.key.skill_id for hit in found}) == limit
        for hit in found:
            exact = float((self.vectors[hit.key] @ query).max())
            assert hit.score == pytest.approx(exact, abs=5e-3)
        wanted = set(self.nearest(query, limit, source))
        return len(wanted & {hit.key for hit in found}) / limit


@pytest.fixture(scope="module")
def library(
    tmp_path_factory: pytest.TempPathFactory, template: SkillDocument, topics: np.ndarray
) -> Iterator[Library]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("search.local.section_matrix.EXACT_ROWS", EXACT_ROWS)
        made = Library(tmp_path_factory.mktemp("sections"), template, topics)
        made.add(range(SKILLS), 1)
        yield made
        made.index.close()


def test_codes_find_the_nearest_of_many(library: Library) -> None:
    queries = vectors_around(library.topics, 1, 20)
    assert np.mean([library.overlap(query, 30) for query in queries]) > 0.97
    assert np.mean([library.overlap(query, 30, "odd") for query in queries]) > 0.97


def test_replaced_and_removed_skills_are_followed(library: Library) -> None:
    queries = vectors_around(library.topics, 2, 10)
    library.overlap(queries[0], 5)
    library.add(range(0, SKILLS, 3), 2)
    library.delete([RevisionKey(key.skill_id, 1) for key in library.vectors if key.seq == 2])
    assert np.mean([library.overlap(query, 30) for query in queries]) > 0.97
    # More than a quarter is gone now, so that the rows were moved together.
    library.delete([key for key in library.vectors if key.seq == 1][: SKILLS // 3])
    assert np.mean([library.overlap(query, 30) for query in queries]) > 0.97
    keys = list(library.vectors)
    found = library.index.get_section_cosines(keys, queries[0])
    assert found.keys() == library.vectors.keys()
    for key in keys:
        assert found[key] == pytest.approx(
            float((library.vectors[key] @ queries[0]).max()), abs=5e-3
        )


def test_mapped_sections_are_found_as_those_in_memory(
    tmp_path: Path,
    template: SkillDocument,
    topics: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some sections are in the pack and some are not; some of each are removed later."""
    monkeypatch.setattr("search.local.section_matrix.EXACT_ROWS", EXACT_ROWS)
    monkeypatch.setattr("search.local.index._MAX_UNPACKED", SKILLS // 2)
    made = Library(tmp_path, template, topics)
    made.add(range(SKILLS - 10), 1)
    made.add(range(0, SKILLS - 10, 9), 2)
    (pack,) = (tmp_path / "packs").glob("sections-*")
    packed = (pack / "sections").stat().st_size // DIMENSION
    assert 0 < packed < len(made.vectors) * SECTIONS
    queries = vectors_around(topics, 7, 10)
    assert np.mean([made.overlap(query, 30) for query in queries]) > 0.97
    made.delete([RevisionKey(key.skill_id, 1) for key in made.vectors if key.seq == 2][1:])
    made.delete([key for key in made.vectors if key.seq == 2][-3:])
    with closing(LocalSearchIndex(tmp_path, "m", DIMENSION, writable=False)) as reading:
        for index in (made.index, reading):
            made.index, written = index, made.index
            assert np.mean([made.overlap(query, 30) for query in queries]) > 0.97
            assert np.mean([made.overlap(query, 30, "odd") for query in queries]) > 0.97
            found = index.get_section_cosines(list(made.vectors), queries[0])
            made.index = written
            assert found.keys() == made.vectors.keys()
            for key, cosine in found.items():
                exact = float((made.vectors[key] @ queries[0]).max())
                assert cosine == pytest.approx(exact, abs=5e-3)
    made.index.close()


def test_the_mean_of_codes_is_chosen_again_when_there_are_twice_the_sections(
    tmp_path: Path, template: SkillDocument, topics: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("search.local.index._MAX_UNPACKED", 5)
    made = Library(tmp_path, template, topics)
    folders: list[str] = []
    for start in (0, 5, 10):
        made.add(range(start, start + 5), 1)
        folders += (path.name for path in (tmp_path / "packs").glob("sections-*"))
    assert folders[0] == folders[1] != folders[2]
    made.index.close()


def test_estimates_of_codes_follow_the_cosines(topics: np.ndarray) -> None:
    vectors = vectors_around(topics, 3, 500)
    scale = np.abs(vectors).max(axis=1, keepdims=True) / 127
    rows = np.rint(vectors / scale).astype(np.int8)
    inverse = 1 / np.linalg.norm(rows.astype(np.float32), axis=1)
    codes = BinaryCodes.create(vectors.mean(axis=0), 600)
    codes.encode(0, rows, inverse.astype(np.float32))
    for query in vectors_around(topics, 4, 5):
        estimates = codes.estimate(query, 500)
        assert np.corrcoef(estimates, vectors @ query)[0, 1] > 0.6
