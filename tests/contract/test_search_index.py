"""What every SearchIndex does. A new implementation adds its opener to `opener`."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from config.errors import PermanentError, TransientError
from search.completed_terms import tag_terms
from search.local import main_delta_engine
from search.local.index import LocalSearchIndex
from search.local.tantivy_engine import TantivyEngine
from search.protocol import (
    Filters,
    FilterSearch,
    Hit,
    LexicalSearch,
    SearchIndex,
    SectionSearch,
    SkillDocument,
    VectorSearch,
)
from search.skill_analysis import analyse_skill, section_text_hashes, skill_text_hashes
from search.text.tokens import tokenize
from search.visible_index import VisibleIndex
from skills.parsing.parse_skill import parse_skill
from skills.record import Completion, RevisionKey
from tests.support.program.fresh_processes import FRESH
from tests.support.program.program import wait_for
from tests.support.samples.documents import ANY, make_document
from tests.support.samples.searches import search_lexical, search_vectors
from tests.support.servers.elastic import ElasticIndices

MODEL, DIMENSION = "hashing:1", 16

Opener = Callable[..., SearchIndex]

BODY = """
# {title}

## Workflow

{body}

## Troubleshooting

Restart the {title} when it stalls.
"""


def open_local(folder: Path, *, writable: bool = True) -> LocalSearchIndex:
    return LocalSearchIndex(folder, MODEL, DIMENSION, writable=writable)


@pytest.fixture(params=["elasticsearch", "local"])
def opener(request: pytest.FixtureRequest) -> Opener:
    if request.param == "local":
        return open_local
    indices: ElasticIndices = request.getfixturevalue("elastic")
    return lambda folder, writable=True: indices.open(folder, MODEL, DIMENSION, writable=writable)


@pytest.fixture
def index(opener: Opener, tmp_path: Path) -> Iterator[SearchIndex]:
    opened = opener(tmp_path / "index")
    yield opened
    opened.close()


def unit(seed: int, rows: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def document(
    name: str, body: str = "Do it.", *, seq: int = 1, source: str = "home", **filters: str
) -> SkillDocument:
    title = name.replace("-", " ")
    text = f"---\nname: {name}\ndescription: Helps with {title}\n---\n"
    text += BODY.format(title=title, body=body)
    parsed = parse_skill(name, text.encode())
    named = {key: (value,) for key, value in filters.items()}
    return make_document(
        RevisionKey(f"{source}:{name}", seq),
        parsed,
        content_hash=f"hash of {name} {seq}",
        vectors=unit(sum(map(ord, text)), 2),
        section_hashes=section_text_hashes(MODEL, parsed),
        filters=Filters(source=(source,), **named),
    )


def known(index: SearchIndex, hashes: Sequence[bytes], count: int) -> dict[bytes, np.ndarray]:
    """Vectors of texts, as soon as so many are known: a cache may lag behind."""
    end = time.monotonic() + 60
    while len(found := index.get_cached_vectors(hashes)) != count and time.monotonic() < end:
        time.sleep(0.05)
    return found


def vectors_of(one: SkillDocument) -> np.ndarray:
    assert one.vectors is not None
    return one.vectors


def search(index: SearchIndex, text: str, filters: Filters = ANY) -> list[str]:
    hits = search_lexical(index, dict.fromkeys(tokenize(text), 1.0), 10, filters)
    return [hit.key.skill_id for hit in hits]


class TestWriting:
    def test_the_newest_seq_is_known(self, index: SearchIndex) -> None:
        assert index.max_seq() == 0
        index.add([document("first", seq=7), document("second", seq=41)])
        assert index.max_seq() == 41
        index.delete([RevisionKey("home:second", 41)])
        assert index.max_seq() == 7

    def test_a_document_is_found_by_any_of_its_words(self, index: SearchIndex) -> None:
        index.add([document("tide-tables"), document("kiln-firing", "Fire slowly overnight.")])
        assert search(index, "when do tides turn at noon, and a word no skill has") == [
            "home:tide-tables"
        ]
        assert search(index, "overnight") == ["home:kiln-firing"]

    def test_adding_again_changes_nothing(self, index: SearchIndex) -> None:
        first = document("tide-tables", "Read the harbour chart.")
        index.add([first])
        other = document("tide-tables", "Entirely different.")
        index.add([other, first])
        assert index.list_keys() == [first.key]
        assert index.get_revisions([first.key])[first.key].parsed == first.parsed
        assert len(search_lexical(index, {"tide": 1.0}, 10, ANY)) == 1

    def test_two_revisions_live_side_by_side(self, index: SearchIndex) -> None:
        old, new = document("loom", "Warp it.", seq=3), document("loom", "Weft it.", seq=9)
        index.add([old])
        index.add([new])
        assert sorted(index.list_keys()) == [old.key, new.key]
        assert search_lexical(index, {"weft": 1.0}, 5, ANY)[0].key == new.key

    def test_what_was_written_is_read_back(self, index: SearchIndex) -> None:
        wanted = document("loom", "Warp it.\n\n```sh\nloom --warp\n```")
        index.add([wanted])
        stored = index.get_revisions([wanted.key, RevisionKey("home:none", 1)])
        assert list(stored) == [wanted.key]
        revision = stored[wanted.key]
        assert revision.parsed == wanted.parsed
        assert revision.content_hash == wanted.content_hash
        assert revision.section_hashes == wanted.section_hashes
        assert revision.filters == wanted.filters
        assert np.array_equal(revision.passage_terms.terms, wanted.passage_terms.terms)
        assert np.array_equal(revision.passage_terms.offsets, wanted.passage_terms.offsets)
        forward = index.get_forward_records([wanted.key])[wanted.key]
        for name in ("terms", "counts", "bigrams", "bigram_weights", "lengths"):
            assert np.array_equal(getattr(forward, name), getattr(wanted.forward, name))
        for _ in range(2):
            vectors = index.get_skill_vectors([wanted.key])[wanted.key]
            assert np.allclose(vectors, vectors_of(wanted), atol=2e-4)

    def test_nothing_to_add_is_fine(self, index: SearchIndex) -> None:
        index.add([])
        assert index.list_keys() == []
        assert search(index, "anything") == []
        assert search_vectors(index, unit(1, 1)[0], 0, 5, ANY) == []

    def test_deleting(self, index: SearchIndex) -> None:
        gone, kept = document("loom"), document("kiln")
        index.add([gone, kept])
        index.delete([gone.key, RevisionKey("home:none", 4)])
        index.delete([gone.key])
        assert index.list_keys() == [kept.key]
        assert search(index, "loom kiln") == ["home:kiln"]
        assert index.get_forward_records([gone.key]) == {}
        near = search_vectors(index, vectors_of(gone)[0], 0, 5, ANY)
        assert [h.key for h in near] in ([], [kept.key])
        index.add([gone])
        assert search(index, "loom") == ["home:loom"]


class TestSearching:
    @pytest.mark.parametrize("text", ["loom AND", "NOT loom", '"loom', "loom*", "name:loom^9 +x"])
    def test_operators_in_text_are_words(self, index: SearchIndex, text: str) -> None:
        index.add([document("loom")])
        assert search(index, text) == ["home:loom"]

    def test_raw_terms_cannot_break_a_query(self, index: SearchIndex) -> None:
        index.add([document("loom")])
        terms = {"loom": 1.0, "": 1.0, "a b": 1.0, "*": 1.0, '"': 1.0, "x\0y": 1.0, "图": 0.0}
        assert [hit.key.skill_id for hit in search_lexical(index, terms, 5, ANY)] == ["home:loom"]

    def test_many_terms_keep_the_rare_ones(self, index: SearchIndex) -> None:
        words = " ".join(f"filler{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(200))
        index.add([document(f"plain-{i}", words) for i in range(6)])
        index.add([document("theodolite", "Level it.")])
        assert "home:theodolite" in search(index, words + " theodolite")

    def test_chinese_is_found(self, index: SearchIndex) -> None:
        index.add([document("report", "先读取日志文件，再生成周报。"), document("loom")])
        assert search(index, "帮我写周报") == ["home:report"]

    def test_filters(self, index: SearchIndex) -> None:
        index.add(
            [
                document("loom", licence="MIT", language="en"),
                document("loom", licence="GPL-3.0", language="zh", source="away"),
                document("loom-two", source="away"),
            ]
        )
        assert search(index, "loom", Filters(source=("home",))) == ["home:loom"]
        assert search(index, "loom", Filters(licence=("GPL-3.0", "ISC"))) == ["away:loom"]
        assert search(index, "loom", Filters(source=("away",), language=("zh",))) == ["away:loom"]
        assert search(index, "loom", Filters(tool=("Bash",))) == []
        vector = unit(5, 1)[0]
        for filters in (Filters(source=("home",)), Filters(licence=("MIT",))):
            near = search_vectors(index, vector, 0, 9, filters)
            assert {hit.key.skill_id for hit in near} <= {"home:loom"}

    def test_revisions_that_pass_filters_are_found_without_words(self, index: SearchIndex) -> None:
        assert index.search_many([FilterSearch(9, ANY)]) == [[]]
        mit, other = document("loom", tool="Bash"), document("kiln", tool="Bash", source="away")
        index.add([mit, other, document("oven", tool="Read")])
        wanted = [
            (9, Filters(tool=("Bash",))),
            (9, Filters(tool=("Bash",), source=("away",))),
            (1, Filters(tool=("Bash",))),
            (0, ANY),
            (9, Filters(tool=("bash",))),
        ]
        found = index.search_many([FilterSearch(*one) for one in wanted])
        assert {hit.key for hit in found[0]} == {mit.key, other.key}
        assert [hit.key for hit in found[1]] == [other.key]
        assert [len(hits) for hits in found[2:]] == [1, 0, 0]

    def test_no_skill_has_a_very_long_value(self, index: SearchIndex) -> None:
        index.add([document("lathe", licence="MIT")])
        long = "x" * 40_000
        assert search(index, "lathe", Filters(licence=(long,))) == []
        assert search(index, "lathe", Filters(licence=(long, "MIT"))) == ["home:lathe"]
        assert search_vectors(index, unit(1, 1)[0], 0, 9, Filters(tool=(long,))) == []

    def test_a_filter_does_not_change_scores(self, index: SearchIndex) -> None:
        index.add([document("loom"), document("kiln")])
        free = search_lexical(index, {"loom": 1.0}, 5, ANY)
        bound = search_lexical(index, {"loom": 1.0}, 5, Filters(source=("home",)))
        assert bound[0].score == pytest.approx(free[0].score)

    def test_neighbours_are_exact(self, index: SearchIndex) -> None:
        documents = [document(f"skill-{i}", f"Body {i}") for i in range(30)]
        index.add(documents[:11])
        search_vectors(index, unit(3, 1)[0], 0, 3, ANY)
        index.add(documents[11:])
        query = unit(7, 1)[0]
        for which in (0, 1):
            exact = {d.key: float(vectors_of(d)[which] @ query) for d in documents}
            best = sorted((k for k in exact if exact[k] > 0), key=lambda k: -exact[k])[:5]
            found = search_vectors(index, query, which, 5, ANY)
            assert [hit.key for hit in found] == best
            assert found[0].score == pytest.approx(exact[best[0]], abs=1e-4)

    def test_several_searches_at_once(self, index: SearchIndex) -> None:
        index.add([document("loom"), document("kiln")])
        vector = unit(5, 1)[0]
        words, nothing = LexicalSearch({"loom": 1.0}, 5, ANY), LexicalSearch({}, 5, ANY)
        found = index.search_many([nothing, words, VectorSearch(vector, 1, 5, ANY), nothing])
        assert found[0] == found[3] == []
        assert found[1] == search_lexical(index, {"loom": 1.0}, 5, ANY)
        assert found[2] == search_vectors(index, vector, 1, 5, ANY)
        assert index.search_many([]) == []

    def test_an_unfinished_word_is_found_in_names_and_descriptions(
        self, index: SearchIndex
    ) -> None:
        index.add([document("tide-tables"), document("kiln-firing", "Titanium glazes.")])

        def find(prefix: str, *words: str, filters: Filters = ANY) -> list[str]:
            one = LexicalSearch(dict.fromkeys(words, 1.0), 10, filters, prefix=prefix)
            return [hit.key.skill_id for hit in index.search_many([one])[0]]

        assert find("ti") == find("tid") == ["home:tide-tables"]
        assert find("titan") == []  # only in its text
        assert sorted(find("ti", "kiln")) == ["home:kiln-firing", "home:tide-tables"]
        assert find("ti", filters=Filters(source=("away",))) == []
        assert find("") == []

    def test_a_zero_vector_is_no_ones_neighbour(self, index: SearchIndex) -> None:
        unknown, partly = document("loom"), document("kiln")
        vectors_of(unknown)[:] = 0.0
        vectors_of(partly)[1] = 0.0
        index.add([unknown, partly])
        assert not index.get_skill_vectors([unknown.key])[unknown.key].any()
        near = search_vectors(index, vectors_of(partly)[0], 0, 5, ANY)
        assert [hit.key for hit in near] == [partly.key]
        assert search_vectors(index, vectors_of(partly)[0], 1, 5, ANY) == []
        assert search_vectors(index, vectors_of(unknown)[0], 0, 5, ANY) == []

    def test_vectors_may_come_later(self, index: SearchIndex) -> None:
        first, second, unknown = document("loom"), document("kiln"), document("lathe")
        index.add([replace(first, vectors=None), second])
        assert search(index, "loom") == ["home:loom"], "found by words at once"
        assert index.complete_keys([first.key]) == {first.key}
        index.load_skill_vectors([first.key, second.key])
        assert set(index.get_skill_vectors([first.key, second.key])) == {second.key}
        assert vectors_of(first) is not None
        near = search_vectors(index, vectors_of(first)[0], 0, 10, ANY)
        assert first.key not in {hit.key for hit in near}
        for _ in range(2):  # idempotent
            index.save_skill_vectors({first.key: vectors_of(first)})
        wait_for(lambda: first.key in index.get_skill_vectors([first.key]))
        stored = index.get_skill_vectors([first.key])[first.key]
        assert np.allclose(stored, vectors_of(first), atol=2e-3)
        task = vectors_of(second)[0]
        cosines = index.get_skill_cosines([second.key, unknown.key, first.key], task)
        assert set(cosines) == {first.key, second.key}
        expected = np.vecdot([vectors_of(first), vectors_of(second)], task)
        assert np.allclose([cosines[first.key], cosines[second.key]], expected, atol=2e-3)
        near = search_vectors(index, vectors_of(first)[0], 0, 10, Filters(source=("home",)))
        assert near[0].key == first.key
        texts = skill_text_hashes(MODEL, first.parsed)
        assert set(known(index, texts, 2)) == set(texts)
        index.delete([first.key])
        assert set(index.get_skill_vectors([first.key, second.key])) == {second.key}
        assert not known(index, texts, 0)

    def test_vectors_of_no_document_are_not_stored(self, index: SearchIndex) -> None:
        index.save_skill_vectors({RevisionKey("home:none", 1): unit(3, 2)})
        assert not search_vectors(index, unit(3, 2)[0], 0, 10, ANY)

    def test_long_and_odd_identifiers(self, index: SearchIndex) -> None:
        odd = [
            document("loom", source='源 "a" \\ ' + "é" * 900),
            document("kiln", source="a@b#1/ ?"),
        ]
        index.add([*odd, document("bellows", licence="long licence " * 5_000)])
        assert {one.key for one in odd} <= set(index.list_keys())
        assert search(index, "kiln") == [odd[1].key.skill_id]
        assert odd[0].key in index.get_revisions([odd[0].key])
        assert search(index, "loom", Filters(source=odd[0].filters.source)) == [odd[0].key.skill_id]
        index.delete([one.key for one in odd])
        assert search(index, "loom kiln bellows") == ["home:bellows"]


class TestVectors:
    def test_sections_are_all_or_nothing(self, index: SearchIndex) -> None:
        wanted = document("loom")
        index.add([wanted])
        hashes = wanted.section_hashes
        vectors = unit(11, len(hashes))
        assert index.get_section_vectors([wanted.key]) == {}
        for _ in range(2):
            index.save_section_vectors(wanted.key, hashes, vectors)
        stored = index.get_section_vectors([wanted.key, RevisionKey("home:none", 1)])
        assert list(stored) == [wanted.key]
        assert np.linalg.norm(stored[wanted.key], axis=1) == pytest.approx(1.0, abs=1e-5)
        assert (stored[wanted.key] * vectors).sum(axis=1).min() > 0.999

    def test_a_skill_without_sections_has_vectors_of_the_dimension(
        self, index: SearchIndex
    ) -> None:
        wanted = replace(document("loom"), section_hashes=())
        index.add([wanted])
        index.save_section_vectors(wanted.key, (), np.empty((0, DIMENSION), np.float32))
        assert index.get_section_vectors([wanted.key])[wanted.key].shape == (0, DIMENSION)

    def test_vectors_are_known_by_text_hash(self, index: SearchIndex) -> None:
        wanted = document("loom")
        index.add([wanted])
        index.save_section_vectors(
            wanted.key, wanted.section_hashes, unit(1, len(wanted.section_hashes))
        )
        hashes = skill_text_hashes(MODEL, wanted.parsed)
        every = {*hashes, *wanted.section_hashes}
        found = known(index, [*every, b"?" * 16], len(every))
        assert set(found) == every
        assert np.allclose(found[hashes[1]], vectors_of(wanted)[1])

    def test_shared_vectors_stay_until_their_last_user_goes(self, index: SearchIndex) -> None:
        old, new = document("loom", seq=1), document("loom", seq=2)
        index.add([old, new])
        hashes = old.section_hashes
        for key in (old.key, new.key):
            index.save_section_vectors(key, hashes, unit(2, len(hashes)))
        index.delete([old.key])
        assert new.key in index.get_section_vectors([new.key])
        assert new.key in index.get_skill_vectors([new.key])
        assert set(known(index, hashes, len(set(hashes)))) == set(hashes)
        index.delete([new.key])
        assert index.get_section_vectors([new.key]) == {}
        assert known(index, hashes, 0) == {}

    def test_vectors_of_a_deleted_revision_are_dropped(self, index: SearchIndex) -> None:
        gone = document("loom")
        vectors = unit(2, len(gone.section_hashes))
        index.save_section_vectors(gone.key, gone.section_hashes, vectors)
        assert index.get_section_vectors([gone.key]) == {}
        assert known(index, gone.section_hashes, 0) == {}
        assert index.partial_keys() == []


def save_sections(index: SearchIndex, one: SkillDocument, seed: int) -> np.ndarray:
    vectors = unit(seed, len(one.section_hashes))
    index.save_section_vectors(one.key, one.section_hashes, vectors)
    return vectors


def near(
    index: SearchIndex,
    vector: np.ndarray,
    count: int,
    limit: int = 50,
    filters: Filters = ANY,
) -> list[Hit]:
    """Hits of a search of sections, as soon as there are so many: a server may lag behind."""
    end = time.monotonic() + 60
    while True:
        found = index.search_many([SectionSearch(vector, limit, filters)])[0]
        if len(found) == count or time.monotonic() > end:
            return found
        time.sleep(0.05)


def towards(vectors: np.ndarray) -> np.ndarray:
    """A unit vector near the last of these, which no other skill has."""
    mixed = vectors[-1] + 0.3 * unit(99, 1)[0]
    return np.asarray(mixed / np.linalg.norm(mixed), dtype=np.float32)


class TestSections:
    @staticmethod
    def fill(index: SearchIndex, count: int) -> dict[RevisionKey, np.ndarray]:
        """Add skills with sections; return the section vectors that the index gives of them."""
        documents = [document(f"skill-{i}", f"Body {i}") for i in range(count)]
        index.add(documents)
        for n, one in enumerate(documents):
            save_sections(index, one, 100 + n)
        return dict(index.get_section_vectors([one.key for one in documents]))

    def test_the_skills_of_the_nearest_sections_are_found(self, index: SearchIndex) -> None:
        stored = self.fill(index, 30)
        query = unit(7, 1)[0]
        exact = {key: float((vectors @ query).max()) for key, vectors in stored.items()}
        positive = sorted((key for key in exact if exact[key] > 0), key=lambda key: -exact[key])
        found = near(index, query, len(positive))
        assert {hit.key for hit in found} == set(positive)
        scores = [hit.score for hit in found]
        assert scores == sorted(scores, reverse=True)
        for hit in found:
            assert hit.score == pytest.approx(exact[hit.key], abs=5e-3)
        assert near(index, query, 5, limit=5) == found[:5]

    def test_the_best_cosine_of_given_revisions(self, index: SearchIndex) -> None:
        stored = self.fill(index, 5)
        unembedded = document("loom")
        index.add([unembedded])
        query = towards(next(iter(stored.values())))
        near(index, query, 1, limit=1)
        keys = [*stored, unembedded.key, RevisionKey("home:none", 1)]
        end = time.monotonic() + 60
        while len(found := index.get_section_cosines(keys, query)) < 5 and time.monotonic() < end:
            time.sleep(0.05)
        assert set(found) == set(stored)
        for key, vectors in stored.items():
            assert found[key] == pytest.approx(float((vectors @ query).max()), abs=5e-3)
        assert index.get_section_cosines([], query) == {}

    def test_it_is_one_of_several_searches(self, index: SearchIndex) -> None:
        stored = self.fill(index, 3)
        query = towards(next(iter(stored.values())))
        expected = near(index, query, 1, limit=1)
        words = LexicalSearch({"body": 1.0}, 5, ANY)
        sections = SectionSearch(query, 1, ANY)
        found = index.search_many([words, sections, VectorSearch(query, 0, 5, ANY)])
        assert found[0] == search_lexical(index, {"body": 1.0}, 5, ANY)
        assert found[1] == expected
        assert found[2] == search_vectors(index, query, 0, 5, ANY)

    def test_filters(self, index: SearchIndex) -> None:
        here, there = document("loom", licence="MIT"), document("loom", source="away")
        index.add([here, there])
        vectors = save_sections(index, here, 3)
        index.save_section_vectors(there.key, there.section_hashes, vectors)
        query = towards(vectors)
        assert {hit.key for hit in near(index, query, 2)} == {here.key, there.key}
        assert [hit.key for hit in near(index, query, 1, filters=Filters(source=("away",)))] == [
            there.key
        ]
        assert [hit.key for hit in near(index, query, 1, filters=Filters(licence=("MIT",)))] == [
            here.key
        ]
        assert near(index, query, 0, filters=Filters(tool=("Bash",))) == []

    def test_revisions_of_a_skill_do_not_take_the_place_of_another(
        self, index: SearchIndex
    ) -> None:
        wanted = unit(5, 1)[0]
        other = document("kiln", "Fire it.")
        revisions = [document("loom", f"Warp it {n} times.", seq=n) for n in range(1, 5)]
        index.add([*revisions, other])
        for n, one in enumerate(revisions):
            vectors = unit(20 + n, len(one.section_hashes))
            vectors[1] = wanted
            index.save_section_vectors(one.key, one.section_hashes, vectors)
        vectors = np.tile(towards(wanted[None]), (len(other.section_hashes), 1))
        index.save_section_vectors(other.key, other.section_hashes, vectors)
        found = near(index, wanted, 5, limit=2)
        assert {hit.key for hit in found} == {other.key, *(one.key for one in revisions)}

    def test_an_edit_replaces_what_is_found(self, index: SearchIndex) -> None:
        old, new = document("loom", "Warp it.", seq=1), document("loom", "Weft it.", seq=2)
        kept = document("kiln")
        index.add([old, kept])
        before = save_sections(index, old, 3)
        save_sections(index, kept, 4)
        query = towards(before)
        near(index, query, 2)
        index.add([new])
        index.save_section_vectors(new.key, new.section_hashes, -before)
        index.delete([old.key])
        end = time.monotonic() + 60
        while True:
            hits = index.search_many([SectionSearch(query, 50, ANY)])[0]
            if old.key not in {hit.key for hit in hits} or time.monotonic() > end:
                break
            time.sleep(0.05)
        assert old.key not in {hit.key for hit in hits}
        assert old.key not in index.get_section_cosines([old.key], query)

    def test_a_zero_vector_has_no_neighbour(self, index: SearchIndex) -> None:
        blank, other = document("loom"), document("kiln")
        index.add([blank, other])
        shape = (len(blank.section_hashes), DIMENSION)
        index.save_section_vectors(blank.key, blank.section_hashes, np.zeros(shape, np.float32))
        query = towards(save_sections(index, other, 4))
        assert [hit.key for hit in near(index, query, 1)] == [other.key]
        assert index.search_many([SectionSearch(np.zeros_like(query), 5, ANY)]) == [[]]

    def test_a_reader_follows_the_writer(self, opener: Opener, tmp_path: Path) -> None:
        writing = opener(tmp_path / "index")
        first, second = document("loom", "Warp."), document("kiln", "Fire.")
        writing.add([first, second])
        reading = opener(tmp_path / "index", writable=False)
        query = unit(5, 1)[0]
        assert near(reading, query, 0) == []
        for one in (first, second):
            vectors = np.tile(query, (len(one.section_hashes), 1))
            writing.save_section_vectors(one.key, one.section_hashes, vectors)
        assert {hit.key for hit in near(reading, query, 2)} == {first.key, second.key}
        writing.delete([first.key])
        assert [hit.key for hit in near(reading, query, 1)] == [second.key]
        reading.close()
        writing.close()


class TestVisible:
    """The index as a reader sees it who may not see the source `away`."""

    @staticmethod
    def fill(index: SearchIndex) -> list[SkillDocument]:
        documents = [
            document("pot", "Throw a pot."),
            *(document(f"pot-{n}", "Throw a pot.", source="away") for n in range(3)),
        ]
        index.add(documents)
        for n, one in enumerate(documents):
            save_sections(index, one, 100 + n)
        return documents

    def test_hidden_revisions_take_no_place_among_the_hits(self, index: SearchIndex) -> None:
        home, *away = self.fill(index)
        visible = VisibleIndex(index, frozenset({"home"}))
        for one in away:
            vector = vectors_of(one)[0]
            section = towards(index.get_section_vectors([one.key])[one.key])
            words = dict.fromkeys(tokenize("throw a pot"), 1.0)
            wait_for(partial(near, index, section, 1, limit=1))
            for filters in (ANY, Filters(source=("home", "away"))):
                found = visible.search_many(
                    [
                        LexicalSearch(words, 1, filters),
                        VectorSearch(vector, 0, 1, filters),
                        SectionSearch(section, 1, filters),
                    ]
                )
                assert {hit.key for hits in found for hit in hits} <= {home.key}
                assert [hit.key for hit in found[0]] == [home.key]
        hidden = Filters(source=("away",))
        assert visible.search_many([LexicalSearch({"pot": 1.0}, 9, hidden)]) == [[]]

    def test_hidden_revisions_are_not_read(self, index: SearchIndex) -> None:
        home, *away = self.fill(index)
        keys = [home.key, *(one.key for one in away)]
        visible = VisibleIndex(index, frozenset({"home"}))
        assert visible.get_revisions(keys).keys() == {home.key}
        assert visible.get_skill_cosines(keys, unit(7, 1)[0]).keys() == {home.key}
        assert visible.get_section_vectors(keys).keys() == {home.key}
        assert set(visible.get_section_cosines(keys, unit(7, 1)[0])) <= {home.key}
        assert visible.get_revisions(keys[1:]) == {}


class TestTogether:
    def test_threads_search_while_others_write(self, index: SearchIndex) -> None:
        failures: list[BaseException] = []

        def guarded(work: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    work()
                except BaseException as error:
                    failures.append(error)

            return run

        def write(lane: int) -> Callable[[], None]:
            def work() -> None:
                for i in range(6):
                    wanted = document(f"lane-{lane}-{i}", "Common thread.")
                    index.add([wanted])
                    assert wanted.key in {
                        h.key for h in search_lexical(index, {"common": 1}, 99, ANY)
                    }
                    index.save_section_vectors(
                        wanted.key, wanted.section_hashes, unit(i, len(wanted.section_hashes))
                    )

            return work

        def read() -> None:
            for i in range(40):
                hits = search_lexical(index, {"common": 1.0}, 99, ANY)
                near = search_vectors(index, unit(i, 1)[0], i % 2, 5, ANY)
                keys = [hit.key for hit in (*hits, *near)]
                assert set(index.get_forward_records(keys)) == set(keys)

        lanes = [write(0), write(1), read, read]
        threads = [threading.Thread(target=guarded(work)) for work in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(index.list_keys()) == 12

    def test_a_reader_follows_a_writer(self, opener: Opener, tmp_path: Path) -> None:
        writer = opener(tmp_path / "index")
        writer.add([document("loom")])
        reader = opener(tmp_path / "index", writable=False)
        assert search(reader, "loom kiln") == ["home:loom"]
        late = document("kiln")
        writer.add([late])
        assert search(reader, "kiln") == ["home:kiln"]
        assert search_vectors(reader, vectors_of(late)[0], 0, 1, ANY)[0].key == late.key
        writer.delete([late.key])
        assert search(reader, "kiln") == []
        near = search_vectors(reader, vectors_of(late)[0], 0, 9, ANY)
        assert late.key not in {h.key for h in near}
        with pytest.raises(PermanentError):
            reader.add([document("forge")])
        reader.close()
        writer.close()


def _write_until_killed(folder: str, started: multiprocessing.synchronize.Event) -> None:
    main_delta_engine.MAX_DELTA = 5  # documents move all the time
    index = open_local(Path(folder))
    for i in range(10_000):
        index.add([document(f"crash-{i}", "Common thread.")])
        if i == 3:
            started.set()


class TestLocalFiles:
    """What concerns the files of the embedded index only."""

    @pytest.mark.parametrize(("model", "dimension"), [("other:1", DIMENSION), (MODEL, 8)])
    def test_another_model_is_refused(self, tmp_path: Path, model: str, dimension: int) -> None:
        open_local(tmp_path).close()
        with pytest.raises(PermanentError, match="was made with"):
            LocalSearchIndex(tmp_path, model, dimension, writable=True)

    def test_reading_without_an_index_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(PermanentError, match="no search index"):
            open_local(tmp_path / "none", writable=False)
        assert not (tmp_path / "none").exists()

    def test_a_damaged_database_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "revisions.sqlite").write_bytes(b"not a database at all" * 100)
        with pytest.raises(PermanentError, match="damaged"):
            open_local(tmp_path)

    def test_a_lost_engine_folder_is_built_again(self, tmp_path: Path) -> None:
        index = open_local(tmp_path)
        index.add([document("loom", licence="MIT"), document("kiln")])
        index.close()
        shutil.rmtree(tmp_path / "terms")
        with pytest.raises(PermanentError, match="skillbus sync"):
            open_local(tmp_path, writable=False)
        index = open_local(tmp_path)
        assert search(index, "loom", Filters(licence=("MIT",))) == ["home:loom"]
        assert search(index, "kiln") == ["home:kiln"]
        index.close()

    def test_a_locked_database_is_transient(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("search.local.revision_store.BUSY_SECONDS", 0.05)
        index = open_local(tmp_path)
        index.add([document("loom")])
        lock = sqlite3.connect(tmp_path / "revisions.sqlite", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransientError):
            index.add([document("kiln")])
        assert search(index, "loom") == ["home:loom"]
        lock.execute("ROLLBACK")
        lock.close()
        index.add([document("kiln")])
        assert search(index, "kiln") == ["home:kiln"]
        index.close()

    def test_what_a_failed_deletion_took_from_the_engines_is_added_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index = open_local(tmp_path)
        one = completed(document("lathe"), written("turning"))
        index.add([one, completed(document("kiln"), written("pottery"))])
        with monkeypatch.context() as patch:
            patch.setattr(index._store, "delete", Mock(side_effect=TransientError("full")))
            with pytest.raises(TransientError):
                index.delete([one.key])
        assert search(index, "lathe") == search_completed(index, "turning") == []
        index.add([one])
        assert search(index, "lathe") == search_completed(index, "turning") == ["home:lathe"]
        index.close()

    def test_a_deletion_that_failed_is_completed_when_it_is_repeated(self, tmp_path: Path) -> None:
        index = open_local(tmp_path)
        index.add([one := document("lathe"), document("kiln")])
        index.close()
        index = open_local(tmp_path)
        other = TantivyEngine(tmp_path / "terms" / "delta", writable=True, stored=True)
        other.rewrite(other.documents())  # it holds the lock of writers
        with pytest.raises(TransientError, match="another process"):
            index.delete([one.key])
        other.close()
        index.delete([one.key])
        assert index.list_keys() == [RevisionKey("home:kiln", 1)]
        assert len(index._engine.numbers()) == 1
        index.close()

    def test_a_kill_loses_nothing_that_was_acknowledged(self, tmp_path: Path) -> None:
        started = FRESH.Event()
        child = FRESH.Process(target=_write_until_killed, args=(str(tmp_path), started))
        child.start()
        assert started.wait(120)
        time.sleep(0.15)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        index = open_local(tmp_path)
        keys = index.list_keys()
        assert len(keys) >= 4
        hits = search_lexical(index, {"common": 1.0}, len(keys) + 5, ANY)
        assert {hit.key for hit in hits} == set(keys)
        index.close()


def test_complete_keys_are_those_stored(index: SearchIndex) -> None:
    one, other = document("kiln"), document("loom")
    index.add([one, other])
    absent = RevisionKey("home:absent", 1)
    assert index.complete_keys([one.key, other.key, absent]) == {one.key, other.key}
    assert index.complete_keys([]) == set()
    index.delete([one.key])
    assert index.complete_keys([one.key, other.key]) == {other.key}


def completed(one: SkillDocument, *completions: Completion) -> SkillDocument:
    """The document with what a language model wrote."""
    parsed = replace(one.parsed, record=replace(one.parsed.record, completions=completions))
    analysis = analyse_skill(parsed)
    return replace(one, parsed=parsed, fields=analysis.fields, forward=analysis.forward)


def written(text: str, stage: str = "record", model: str = "m") -> Completion:
    return Completion(stage, model, 1, {"domain_tags": (text,)})


def search_completed(
    index: SearchIndex, text: str, origin: str = "record/1/m", filters: Filters = ANY
) -> list[str]:
    terms = tag_terms(dict.fromkeys(tokenize(text), 1.0), origin)
    hits = index.search_many([LexicalSearch(terms, 10, filters, completed=True)])[0]
    return [hit.key.skill_id for hit in hits]


class TestCompletions:
    def test_they_are_found_by_origin_and_only_where_they_are_searched(
        self, index: SearchIndex
    ) -> None:
        index.add([document("loom"), document("kiln")])
        assert search_completed(index, "pottery") == []
        index.add(
            [
                completed(document("pot", seq=2), written("pottery"), written("mugs", "prompts")),
                completed(document("vase", seq=2), written("pottery", model="other")),
            ]
        )
        assert search_completed(index, "pottery") == ["home:pot"]
        assert search_completed(index, "mugs") == []
        assert search_completed(index, "mugs", "prompts/1/m") == ["home:pot"]
        assert search_completed(index, "pottery", "record/1/other") == ["home:vase"]
        assert search(index, "pottery mugs") == []
        assert search_completed(index, "pottery", filters=Filters(source=("away",))) == []
        assert search_completed(index, "pottery", filters=Filters(source=("home",))) == ["home:pot"]

    def test_the_best_match_comes_first(self, index: SearchIndex) -> None:
        texts = {"one": "clay", "two": "clay pots", "three": "clay pots glaze"}
        index.add([completed(document(name), written(text)) for name, text in texts.items()])
        found = search_completed(index, "clay pots glaze")
        assert found == ["home:three", "home:two", "home:one"]

    def test_they_change_no_search_of_the_skills_own_text(
        self, opener: Opener, tmp_path: Path
    ) -> None:
        plain = [document("loom", "Warp it."), document("kiln", "Fire it.")]
        orders = []
        for name, texts in (("without", ()), ("with", (written("warp pot kiln " * 5),))):
            index = opener(tmp_path / name)
            index.add([completed(one, *texts) for one in plain])
            index.add([document("pot", "Throw it.")])
            found = search_lexical(index, {"warp": 1.0, "pot": 0.5, "kiln": 0.2}, 10, ANY)
            orders.append([hit.key.skill_id for hit in found])
            index.close()
        assert orders[0] == orders[1] == ["home:pot", "home:kiln", "home:loom"]

    def test_they_are_read_back_and_deleted(self, index: SearchIndex) -> None:
        wanted = completed(document("pot"), written("pottery"))
        index.add([wanted, document("loom")])
        index.add([wanted])
        assert index.get_revisions([wanted.key])[wanted.key].parsed == wanted.parsed
        record = index.get_forward_records([wanted.key])[wanted.key]
        assert [one.origin for one in record.completed] == ["record/1/m"]
        assert search_completed(index, "pottery") == ["home:pot"]
        index.delete([wanted.key])
        assert search_completed(index, "pottery") == []

    def test_other_processes_find_them(self, opener: Opener, tmp_path: Path) -> None:
        writing = opener(tmp_path / "index")
        writing.add([document("loom")])
        reading = opener(tmp_path / "index", writable=False)
        assert search_completed(reading, "pottery") == []
        writing.add([completed(document("pot"), written("pottery"))])
        assert search_completed(reading, "pottery") == ["home:pot"]
        reading.close()
        writing.close()
        again = opener(tmp_path / "index")
        assert search_completed(again, "pottery") == ["home:pot"]
        again.close()

    def test_what_a_kill_left_out_is_written_when_the_index_is_opened(self, tmp_path: Path) -> None:
        opened = open_local(tmp_path / "index")
        opened.add([completed(document("pot"), written("pottery")), document("loom")])
        opened.close()
        shutil.rmtree(tmp_path / "index" / "completed")
        again = open_local(tmp_path / "index")
        assert search_completed(again, "pottery") == ["home:pot"]
        again.close()

    def test_without_any_there_is_no_engine_for_them(self, tmp_path: Path) -> None:
        opened = open_local(tmp_path / "index")
        opened.add([document("loom")])
        assert search_completed(opened, "pottery") == []
        opened.close()
        assert not (tmp_path / "index" / "completed").exists()


@pytest.mark.usefixtures("no_wait_for_leases")
def test_an_index_answers_as_before_when_deleted_documents_were_overwritten(
    opener: Opener, tmp_path: Path
) -> None:
    """Of so many documents that there are packs."""
    opened = opener(tmp_path / "index")
    names = [f"loom-{number}" for number in range(120)]
    opened.add([document(name) for name in names])
    opened.close()
    opened = opener(tmp_path / "index")
    reading = opener(tmp_path / "index", writable=False)
    gone = [RevisionKey(f"home:{name}", 1) for name in names[:30]]
    before = [hit.key for hit in search_lexical(reading, {"loom": 1.0}, 200, ANY)]
    opened.delete(gone)
    opened.overwrite_deleted()
    opened.add([document("loom-new")])
    for index in (opened, reading):
        found = {hit.key for hit in search_lexical(index, {"loom": 1.0}, 200, ANY)}
        assert found == {*before, RevisionKey("home:loom-new", 1)}.difference(gone)
        left = [key for key in before if key not in gone][:50]
        assert set(index.get_forward_records([*left, *gone])) == set(left)
        assert set(index.get_skill_vectors([*left, *gone])) == set(left)
        index.close()
    again = opener(tmp_path / "index")
    again.delete(again.list_keys())
    again.overwrite_deleted()
    assert search_lexical(again, {"loom": 1.0}, 200, ANY) == []
    again.close()
