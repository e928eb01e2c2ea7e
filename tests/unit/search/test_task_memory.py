"""Memory of past tasks: a function of the set of tasks, by nearness, with limits for owners."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.scoring import past_task_rows
from search.scoring.cosine_scale import CosineScale
from search.scoring.memory_evidence import (
    MemoryWeights,
    NearTask,
    OwnerRules,
    SkillEvidence,
    weigh_evidence,
)
from search.scoring.past_task_rows import PastTaskRows, TaskWords, to_int8, weigh_words
from search.scoring.task_memory import PastTask, TaskMemory
from search.text.query_understanding import understand
from skills.outcomes.labels import SkillLabel

DIMENSION = 32
SCALE = CosineScale(0.1, 0.1)
WORDS = weigh_words(understand("clean the trips of a bike share"))
SKILLS = ("lib:a", "lib:b", "other:c")
OWNERS = ("", "ann", "bob", "eve")


@cache
def unit(seed: int, dimension: int = DIMENSION) -> np.ndarray:
    """A unit vector near one of four topics."""
    topic = np.random.default_rng(seed % 4).normal(size=dimension)
    vector = topic + 0.5 * np.random.default_rng(1000 + seed).normal(size=dimension)
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


@cache
def words_of(seed: int) -> TaskWords:
    rng = np.random.default_rng(seed)
    ids = np.unique(rng.integers(1, 30, size=6)).astype(np.uint64)
    shares = rng.uniform(0.1, 1.0, size=len(ids))
    return TaskWords(ids, (shares / np.linalg.norm(shares)).astype(np.float32))


LABELS = st.lists(
    st.builds(
        lambda skill, owner, day, weight, helped: SkillLabel(
            skill, owner, day, weight * helped, weight * (not helped)
        ),
        st.sampled_from(SKILLS),
        st.sampled_from(OWNERS),
        st.integers(20_000, 20_400),
        st.sampled_from((0.5, 1.0)),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
).map(lambda labels: tuple(sorted(labels)))
TASKS = st.lists(
    st.builds(
        lambda number, labels, by_words: PastTask(
            f"q{number}", words_of(number) if by_words else to_int8(unit(number)), labels
        ),
        st.integers(0, 40),
        LABELS,
        st.booleans(),
    ),
    unique_by=lambda task: task.task_id,
    max_size=30,
)


def memory_of(tasks: list[PastTask]) -> TaskMemory:
    memory = TaskMemory(DIMENSION, SCALE)
    memory.add(tasks)
    return memory


def recall_all(memory: TaskMemory, rules: OwnerRules | None = None) -> Sequence[object]:
    """What is recalled for tasks with and without vectors."""
    rules = rules or OwnerRules()
    by_vector = [memory.recall(WORDS, unit(100 + n), rules) for n in range(4)]
    return by_vector + [memory.recall(words_of(200 + n), None, rules) for n in range(4)]


@given(TASKS, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_order_of_arrival_changes_no_bit(tasks: list[PastTask], random: Random) -> None:
    shuffled = list(tasks)
    random.shuffle(shuffled)
    assert recall_all(memory_of(tasks)) == recall_all(memory_of(shuffled))


@given(TASKS, st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_removed_leaves_no_trace(tasks: list[PastTask], data: st.DataObject) -> None:
    gone = (
        data.draw(st.lists(st.sampled_from(tasks), unique_by=lambda t: t.task_id)) if tasks else []
    )
    memory = memory_of(tasks)
    memory.remove([task.task_id for task in gone])
    kept = [task for task in tasks if task not in gone]
    assert recall_all(memory) == recall_all(memory_of(kept))
    memory.add(gone)
    assert recall_all(memory) == recall_all(memory_of(tasks))


def test_many_rows_are_compared_alike_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes choose what is compared: rows of other topics leave the choice as it was."""
    monkeypatch.setattr("search.scoring.task_memory.COMPARED_ROWS", 50)
    label = (SkillLabel("lib:a", "", 20_000, 1.0),)
    tasks = [PastTask(f"q{n:04}", to_int8(unit(n)), label) for n in range(800)]
    first = memory_of(tasks)
    second = memory_of(tasks[::-1])
    second.remove([f"q{n:04}" for n in range(0, 800, 2)])
    assert recall_all(first) != recall_all(second)
    second.add(tasks[::2])
    assert recall_all(first) == recall_all(second)


def test_codes_find_the_nearest_rows() -> None:
    rows = PastTaskRows(384)
    for n in range(2000):
        rows.add(to_int8(unit(n, 384)))
    exact = rows.find_near_vector(to_int8(unit(5, 384)), 2000)
    some = rows.find_near_vector(to_int8(unit(5, 384)), 300)
    best = exact.rows[np.argsort(-exact.similarities)[:20]]
    assert len(some.rows) < 400
    assert len(np.intersect1d(best, some.rows)) >= 18


def test_cosines_are_those_of_the_vectors() -> None:
    rows = PastTaskRows(DIMENSION)
    rows.add(to_int8(unit(1)))
    found = rows.find_near_vector(to_int8(unit(2)))
    assert found.similarities[0] == pytest.approx(float(unit(1) @ unit(2)), abs=0.01)


def test_words_find_tasks_without_a_vector() -> None:
    """Also in Chinese, whose words are pairs of characters."""
    for text, near, far in (
        ("kiln temperature log", "log of the kiln temperature", "slides about bees"),
        ("记录烧制温度", "烧制温度要记录", "写一首关于蜜蜂的诗"),
    ):
        memory = memory_of(
            [
                PastTask("near", weigh_words(understand(near)), (SkillLabel("a:a", "", 1, 1.0),)),
                PastTask("far", weigh_words(understand(far)), (SkillLabel("b:b", "", 1, 1.0),)),
            ]
        )
        found = memory.recall(weigh_words(understand(text)), None, OwnerRules())
        assert list(found) == ["a:a"]
        assert found["a:a"].effect > 0


def near_tasks(*labels: tuple[SkillLabel, ...]) -> list[NearTask]:
    return [NearTask(f"q{n}", 1.0, one) for n, one in enumerate(labels)]


def weigh(*labels: tuple[SkillLabel, ...], rules: OwnerRules | None = None) -> SkillEvidence:
    newest = max(label.day for one in labels for label in one)
    found = weigh_evidence(
        near_tasks(*labels), lambda: newest, rules or OwnerRules(), MemoryWeights()
    )
    return found["lib:a"]


def helped(owner: str = "", day: int = 20_000) -> tuple[SkillLabel, ...]:
    return (SkillLabel("lib:a", owner, day, helped=1.0),)


def rejected(owner: str = "", day: int = 20_000) -> tuple[SkillLabel, ...]:
    return (SkillLabel("lib:a", owner, day, rejected=1.0),)


def test_help_raises_rejection_lowers_and_both_balance() -> None:
    assert weigh(helped()).effect > 0 > weigh(rejected()).effect
    assert weigh(helped(), rejected()).effect < weigh(helped()).effect
    assert weigh(helped(), helped()).effect > weigh(helped()).effect


def test_a_rejection_in_the_same_task_weighs_as_much_as_a_help() -> None:
    weights = MemoryWeights()

    def again(*labels: SkillLabel) -> SkillEvidence:
        same = [NearTask("q", weights.repeated, labels)]
        return weigh_evidence(same, lambda: 20_000, OwnerRules(), weights)["lib:a"]

    for_it, against = again(*helped()), again(*rejected())
    assert against.effect == -for_it.effect
    assert against.odds == -for_it.odds
    assert against.effect < 10 * weigh(rejected()).effect
    assert again(*helped(), *rejected()).effect == 0


@given(st.integers(0, 10_000))
def test_the_same_task_is_known_in_spite_of_rounding(seed: int) -> None:
    vector = unit(seed)
    memory = memory_of([PastTask("q", to_int8(vector), helped())])
    found = memory.recall(weigh_words(understand("kiln")), vector, OwnerRules())
    assert found["lib:a"].contributions[0].nearness == MemoryWeights().repeated


def test_old_reports_weigh_less_than_new_ones() -> None:
    weights = MemoryWeights()
    old = helped(day=int(20_000 - weights.half_life))
    found = weigh(old, (SkillLabel("lib:b", "", 20_000, helped=1.0),))
    assert found.contributions[0].helped == pytest.approx(0.5)


def test_one_untrusted_owner_only_nudges_and_two_agree() -> None:
    alone = weigh(helped("ann"), helped("ann"))
    assert alone.effect == 0
    assert alone.nudge > 0
    both = weigh(helped("ann"), helped("bob"))
    assert both.effect == weigh(helped("")).effect
    assert weigh(helped("ann"), rules=OwnerRules(least_owners=1)).effect > 0
    assert weigh(helped("ann"), rules=OwnerRules(trusted=frozenset({"ann"}))).effect > 0


@given(st.lists(st.sampled_from(("bob", "cid")), max_size=6), st.integers(1, 50))
def test_no_owner_adds_more_than_another_one_said(others: list[str], reports: int) -> None:
    """However often an owner reports, and on however many days."""
    honest = [helped(owner) for owner in others]
    attack = [helped("eve", 20_000 - n) for n in range(reports)]
    effect = weigh(*honest, *attack).effect
    everybody = weigh(*[helped("") for _ in others], helped("", 19_000)).effect if others else 0.0
    assert effect <= everybody


def test_tasks_of_a_day_are_capped_for_owners_without_trust() -> None:
    rules = OwnerRules(least_owners=1, daily_tasks=3)
    assert len(weigh(*[helped("eve")] * 10, rules=rules).contributions) == 3
    assert len(weigh(*[helped("")] * 10, rules=rules).contributions) == 10
    days = [helped("eve", 20_000 + n) for n in range(7)]
    assert len(weigh(*days, rules=rules).contributions) == 7


def test_one_owner_without_trust_takes_a_quarter_of_the_near_tasks() -> None:
    rules = OwnerRules(least_owners=1)
    most = MemoryWeights().tasks // 4
    attack = [helped("eve", 20_000 + n) for n in range(50)]
    found = weigh(*attack, helped("ann"), rules=rules).contributions
    assert [one.owner for one in found].count("eve") == most
    assert "ann" in {one.owner for one in found}


def test_contributors_have_no_say_about_skills_of_their_source() -> None:
    barred = OwnerRules(least_owners=1, contributors={"lib": frozenset({"eve"})})
    labels = (*helped("eve"), SkillLabel("other:c", "eve", 20_000, helped=1.0))
    found = weigh_evidence(near_tasks(labels), lambda: 20_000, barred, MemoryWeights())
    assert list(found) == ["other:c"]
    trusted = OwnerRules(trusted=frozenset({"eve"}), contributors=barred.contributors)
    assert "lib:a" in weigh_evidence(near_tasks(labels), lambda: 20_000, trusted, MemoryWeights())


def test_a_crowd_of_one_owner_does_not_hide_what_others_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("search.scoring.task_memory.COMPARED_ROWS", 10)
    vector = to_int8(unit(1))
    crowd = [
        PastTask(f"a{n:03}", vector, (SkillLabel("x:x", "eve", 20_000, 1.0),)) for n in range(99)
    ]
    honest = PastTask("z", to_int8(unit(5)), (SkillLabel("lib:a", "", 20_000, 1.0),))
    found = memory_of([*crowd, honest]).recall(WORDS, unit(1), OwnerRules())
    assert found["lib:a"].effect > 0
    assert found["x:x"].effect == 0


def test_the_newest_day_is_not_looked_for_if_no_near_task_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = memory_of([PastTask(f"q{n}", to_int8(unit(1)), helped()) for n in range(9)])
    searched: list[OwnerRules] = []
    find = memory._find_newest_day

    def find_newest_day(rules: OwnerRules) -> int:
        searched.append(rules)
        return find(rules)

    monkeypatch.setattr(memory, "_find_newest_day", find_newest_day)
    assert memory.recall(WORDS, unit(1), OwnerRules(sources=frozenset({"other"}))) == {}
    assert searched == []
    rules = OwnerRules(sources=frozenset({"lib"}))
    assert memory.recall(WORDS, unit(1), rules).keys() == {"lib:a"}
    assert searched == [rules]


def test_the_oldest_tasks_are_listed_by_day_then_id() -> None:
    tasks = [
        PastTask(name, words_of(1), (SkillLabel("lib:a", "", day, 1.0),))
        for name, day in (("b", 2), ("a", 2), ("c", 1))
    ]
    assert memory_of(tasks).list_oldest(2) == ["c", "a"]


def test_sparse_rows_are_rebuilt() -> None:
    tasks = [PastTask(f"q{n}", to_int8(unit(n)), helped()) for n in range(700)]
    memory = memory_of(tasks)
    memory.remove([f"q{n}" for n in range(600)])
    assert memory._rows.size == 100
    assert recall_all(memory) == recall_all(memory_of(tasks[600:]))


def test_words_beyond_the_heaviest_are_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_task_rows, "_MAX_POSTINGS", 3)
    rows = PastTaskRows(DIMENSION)
    ids = np.array([1, 2], dtype=np.uint64)
    rows.add(TaskWords(ids[:1], np.ones(1, dtype=np.float32)))
    for _ in range(5):
        rows.add(TaskWords(ids[1:], np.ones(1, dtype=np.float32)))
    shares = np.array([0.8, 0.6], dtype=np.float32)
    assert rows.find_sharing_words(TaskWords(ids, shares)).rows.tolist() == [0]
