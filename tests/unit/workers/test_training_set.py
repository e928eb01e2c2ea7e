"""The lists that a reranker is trained on: queries, folds and negatives."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.protocol import StoredRevision, Vector
from search.skill_analysis import analyse_skill
from skills.parsing.parse_skill import parse_skill
from skills.record import ParsedSkill, RevisionKey
from tests.support.samples.tiny import TinyEncoder
from workers.training.cloze_queries import make_cloze_queries
from workers.training.model_prompts import StoredPrompts, match_near_misses
from workers.training.negative_mining import NegativeMiner
from workers.training.query_origins import OWN_TEXT
from workers.training.reranker.training_lists import (
    HeldOutQuery,
    RerankerOptions,
    TrainingList,
    TrainingSet,
)
from workers.training.trainer import load_training_set, save_training_set
from workers.training.training_data import assign_folds

BODY = """# Kiln

Opening words about nothing in particular at all.

## Loading

Leave a finger of room between pots on every shelf. More words follow here.

## Cooling

Wait until the pyrometer reads less than ninety degrees.

```sh
echo cool down slowly and wait
```
"""


def parse(name: str, description: str, body: str = BODY, extra: str = "") -> ParsedSkill:
    text = f"---\nname: {name}\ndescription: {description}\n{extra}---\n{body}"
    return parse_skill(name, text.encode())


KILN = parse("kiln-firing", "Fire stoneware to a good glaze. Use kiln firing when pots are dry.")


def test_queries_come_from_the_skills_own_text() -> None:
    queries = make_cloze_queries(KILN, 20, "seed")
    texts = {query.text for query in queries}
    assert "Fire stoneware to a good glaze." in texts
    assert "Loading: Leave a finger of room between pots on every shelf." in " ".join(texts)
    whole = "\n".join(KILN.lines)
    assert all(piece in whole for query in queries for piece in query.pieces)


def test_no_query_says_the_skills_name() -> None:
    assert not any(
        "kiln firing" in query.text.lower() for query in make_cloze_queries(KILN, 20, "seed")
    )


def test_queries_are_drawn_by_the_seed() -> None:
    assert make_cloze_queries(KILN, 3, "a") == make_cloze_queries(KILN, 3, "a")
    draws = {tuple(make_cloze_queries(KILN, 2, str(seed))) for seed in range(20)}
    assert len(draws) > 1


def test_a_skill_without_prose_gives_no_query() -> None:
    assert make_cloze_queries(parse("x", "short", "# X\n\n```\ncode\n```\n"), 6, "seed") == []
    assert make_cloze_queries(KILN, 0, "seed") == []


names = st.sampled_from([f"crafts:{letter}" for letter in "abcdefghij"])


@given(st.lists(st.lists(names, min_size=1, max_size=3, unique=True)), st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_what_is_needed_together_is_in_one_fold(tasks: list[list[str]], folds: int) -> None:
    ids = [f"crafts:{letter}" for letter in "abcdefghij"]
    dealt = assign_folds(tasks, ids, folds, 0)
    assert sorted(dealt) == ids
    assert set(dealt.values()) <= set(range(folds))
    for needed in tasks:
        assert len({dealt[name] for name in needed}) == 1
    assert dealt == assign_folds(tasks, ids, folds, 0)


def test_folds_share_tasks_and_skills_out() -> None:
    ids = [f"crafts:{number}" for number in range(20)]
    dealt = assign_folds([[name] for name in ids[:10]], ids, 5, 1)
    for some in (ids[:10], ids[10:]):
        counts = [sum(dealt[name] == fold for name in some) for fold in range(5)]
        assert counts == [2] * 5


def revision(number: int, parsed: ParsedSkill) -> StoredRevision:
    analysis = analyse_skill(parsed)
    key = RevisionKey(f"crafts:{number}", 1)
    return StoredRevision(key, "hash", parsed, analysis.passage_terms, ())


def miner(*skills: ParsedSkill, vectors: dict[int, Vector] | None = None) -> NegativeMiner:
    revisions = [revision(number, parsed) for number, parsed in enumerate(skills)]
    unit = np.eye(len(skills) + 1, dtype=np.float32)
    return NegativeMiner(
        revisions,
        {
            r.key: (vectors or {}).get(n, np.stack([unit[n], unit[n]]))
            for n, r in enumerate(revisions)
        },
    )


def others(count: int, extra: str = "") -> list[ParsedSkill]:
    words = itertools.count()
    return [
        parse(
            f"craft-{number}",
            f"Craft number {number}",
            " ".join(f"word{next(words)}" for _ in range(30)),
            extra,
        )
        for number in range(count)
    ]


def test_ten_negatives_without_the_needed_ones() -> None:
    mined = miner(KILN, *others(20)).mine_negatives(
        "crafts:0", ["crafts:0", "crafts:3"], ["crafts:5"], "s"
    )
    assert len(mined) == len(set(mined)) == 9  # there is one category: nothing outside it
    assert not {"crafts:0", "crafts:3"} & set(mined)
    assert mined == miner(KILN, *others(20)).mine_negatives(
        "crafts:0", ["crafts:0", "crafts:3"], ["crafts:5"], "s"
    )


def test_a_small_library_gives_what_it_has() -> None:
    mined = miner(KILN, *others(3)).mine_negatives("crafts:0", ["crafts:0"], [], "s")
    assert sorted(mined) == ["crafts:1", "crafts:2", "crafts:3"]
    assert miner(KILN).mine_negatives("crafts:0", ["crafts:0"], [], "s") == ()


@pytest.mark.parametrize(
    ("layer", "twin", "near"),
    [
        ("name", parse("Kiln_Firing", "Something else", "Other words altogether here."), False),
        ("overlap", parse("pottery-oven", "Something else"), False),
        ("vector", parse("pottery-oven", "Something else", "Other words are here."), True),
    ],
)
def test_what_would_do_as_well_is_no_negative(layer: str, twin: ParsedSkill, near: bool) -> None:
    unit = np.eye(23, dtype=np.float32)
    vectors = {1: np.stack([unit[0], unit[1]])} if near else {}
    made = miner(KILN, twin, *others(20), vectors=vectors)
    mined = made.mine_negatives("crafts:0", ["crafts:0"], ["crafts:2", "crafts:1"], "s")
    assert "crafts:1" not in mined
    assert made.counts[layer] > 0
    assert set(made.counts) == {"candidates", layer}
    assert made.filter_ranking(["crafts:0"], ["crafts:1", "crafts:2", "crafts:0"], 5) == (
        "crafts:2",
    )


def test_the_same_category_is_drawn_from() -> None:
    tagged = [
        replace(parsed, record=replace(parsed.record, domain_tags=("clay",)))
        for parsed in (KILN, *others(1))
    ]
    made = miner(*tagged, *others(60))
    for seed in range(8):
        assert "crafts:1" in made.mine_negatives("crafts:0", ["crafts:0"], [], str(seed))


def test_lexical_negatives_come_from_behind_the_first_of_the_ranking() -> None:
    ranking = [f"crafts:{number}" for number in (7, 60, 61, 62)]
    unit = np.eye(72, dtype=np.float32)
    near = {n: np.stack([unit[0] * 0.1 + unit[n], unit[n]]) for n in range(8, 59)}
    made = miner(KILN, *others(70), vectors=near)  # number 7 is not among the nearest 50
    tagged = [made.mine_negatives("crafts:0", ["crafts:0"], ranking, str(n)) for n in range(5)]
    assert all({"crafts:60", "crafts:61", "crafts:62"} <= set(ids) for ids in tagged)
    assert all("crafts:7" not in ids[:7] for ids in tagged)


def test_random_negatives_are_of_other_categories() -> None:
    clay, wool = (
        [replace(one, record=replace(one.record, domain_tags=(tag,))) for one in others(30)]
        for tag in ("clay", "wool")
    )
    unit = np.eye(61, dtype=np.float32)
    near = {n: np.stack([unit[0] * 0.1 + unit[n], unit[n]]) for n in range(1, 30)}
    near |= {n: np.stack([unit[n] - unit[0] * 0.1, unit[n]]) for n in range(30, 60)}
    made = miner(*clay, *wool, vectors=near)
    for seed in range(8):
        last = made.mine_negatives("crafts:0", ["crafts:0"], [], str(seed))[-1]
        assert int(last.removeprefix("crafts:")) >= 30


def test_skills_alike_are_known_for_batches() -> None:
    twin = parse("Kiln_Firing", "Something else", "Other words altogether here.")
    unit = np.eye(6, dtype=np.float32)
    near = {2: np.stack([unit[0], unit[2]])}
    found = miner(KILN, twin, *others(3), vectors=near).find_duplicates()
    assert found["crafts:0"] == ("crafts:1", "crafts:2")
    assert found["crafts:2"] == ("crafts:0",)
    assert "crafts:3" not in found


def test_a_training_set_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    training_set = TrainingSet(
        RerankerOptions("base", ("en",), seed=3),
        [TrainingList("问 a query", "a:1", ("a:2", "a:3"), ("piece",))],
        [HeldOutQuery(OWN_TEXT, "other", ("a:2",), ("a:2", "a:1"), (2.5, 0.125))],
        {"a:1": "one", "a:2": "two", "a:3": "three"},
        {"skills": 3},
    )
    save_training_set(tmp_path, training_set)
    assert load_training_set(tmp_path, TrainingSet) == training_set


def test_near_misses_of_others_become_negatives_of_like_prompts() -> None:
    prompts = {
        "a:glaze": StoredPrompts(("mix a blue glaze for mugs",), ("carve a wooden spoon",)),
        "a:carve": StoredPrompts(("carve a wooden spoon for soup",), ("mix a blue glaze",)),
        "a:tides": StoredPrompts(("cross the estuary at noon",), ()),
    }
    assert match_near_misses(TinyEncoder(), prompts) == {
        "mix a blue glaze for mugs": ("a:carve",),
        "carve a wooden spoon for soup": ("a:glaze",),
    }
    assert match_near_misses(TinyEncoder(), {}) == {}
