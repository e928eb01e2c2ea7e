"""What every `SkillPairStore` does. A new implementation adds its opener to `reopen`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.server_settings import ServerSettings
from skills.bundle.rejection import RejectionReason
from tasks.broker.redis_connection import connect
from tasks.language_model.answer_store import RefinementKind
from tasks.language_model.skill_pairs import protocol
from tasks.language_model.skill_pairs.protocol import (
    AskedPair,
    PairVerdict,
    RejectedPair,
    SkillPairStore,
    find_compared_pairs,
)
from tasks.language_model.skill_pairs.redis import RedisSkillPairs
from tasks.language_model.skill_pairs.sqlite import SqliteSkillPairs
from tasks.language_model.sqlite_answers import SqliteAnswerStore
from tests.support.samples.reopened import reopening
from tests.support.servers.redis_database import redis_settings

__all__ = ["redis_settings"]

Reopen = Callable[[], SkillPairStore]
KIND = RefinementKind("links", "model", 1)
REDUNDANT, INCOMPATIBLE = RejectionReason.REDUNDANT, RejectionReason.INCOMPATIBLE
TOO_GENERAL = RejectionReason.TOO_GENERAL


@pytest.fixture(params=["sqlite", "redis"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    def open_store() -> SkillPairStore:
        if request.param == "sqlite":
            return SqliteSkillPairs(tmp_path / "answers.db")
        settings: ServerSettings = request.getfixturevalue("redis_settings")
        return RedisSkillPairs(connect(settings), settings)

    with reopening(open_store) as reopened:
        yield reopened


@pytest.fixture
def store(reopen: Reopen) -> SkillPairStore:
    return reopen()


def asked(one: str, other: str) -> AskedPair:
    return AskedPair((one, other), (f"lib:{one}", f"lib:{other}"))


def verdict(one: str, other: str, kind: str = "", **values: object) -> PairVerdict:
    given: dict[str, object] = {"type": kind, "evidence": "line 3: “ünd”" if kind else ""}
    return PairVerdict((one, other), (f"lib:{one}", f"lib:{other}"), **(given | values))  # type: ignore[arg-type]  # keywords


# -- verdicts


def test_a_pair_is_reserved_for_one_side(store: SkillPairStore) -> None:
    store.claim_pairs(KIND, "b", [asked("b", "c"), asked("a", "b")])
    store.claim_pairs(KIND, "a", [asked("a", "b"), asked("a", "c")])
    assert store.list_claimed(KIND, "b") == [asked("b", "c"), asked("a", "b")]
    assert store.list_claimed(KIND, "a") == [asked("a", "c")]
    assert store.list_claimed(KIND, "c") == []


def test_a_pair_without_verdict_stays_reserved(reopen: Reopen) -> None:
    first = reopen()
    first.claim_pairs(KIND, "a", [asked("a", "b"), asked("a", "c")])
    first.save_verdicts(KIND, [verdict("a", "b")])
    assert reopen().list_claimed(KIND, "a") == [asked("a", "c")]


def test_what_is_reserved_or_answered_is_known(store: SkillPairStore) -> None:
    store.claim_pairs(KIND, "a", [asked("a", "b")])
    store.save_verdicts(KIND, [verdict("a", "c", "conflict"), verdict("b", "c")])
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]
    assert store.find_known(KIND, pairs) == set(pairs[:3])
    assert store.find_known(RefinementKind("links", "model", 2), pairs) == set()
    assert store.find_known(RefinementKind("links", "other", 1), pairs) == set()


def test_links_are_found_from_both_sides(reopen: Reopen) -> None:
    store = reopen()
    needs = verdict("a", "b", "dependency", first=False)
    same = verdict("b", "c", "alternative")
    store.save_verdicts(KIND, [same, needs, verdict("a", "c")])
    again = reopen()
    assert again.find_links(KIND, ["a", "b", "c", "d"]) == {
        "a": [needs], "b": [needs, same], "c": [same], "d": [],
    }  # fmt: skip
    assert set(again.list_linked(KIND)) == {"a", "b", "c"}
    assert list(again.list_linked(RefinementKind("links", "other", 1))) == []


def test_the_first_verdict_is_kept(store: SkillPairStore) -> None:
    store.claim_pairs(KIND, "a", [asked("a", "b")])
    store.save_verdicts(KIND, [verdict("a", "b")])
    store.save_verdicts(KIND, [verdict("a", "b", "conflict")])
    store.claim_pairs(KIND, "b", [asked("a", "b")])
    assert store.find_links(KIND, ["a"]) == {"a": []}
    assert store.list_claimed(KIND, "b") == []


def test_threads_that_reserve_the_same_pairs_share_them(reopen: Reopen) -> None:
    names = [f"n{number}" for number in range(8)]
    stores = [reopen() for _ in names]

    def reserve(name: str, store: SkillPairStore) -> None:
        others = (other for other in names if other != name)
        pairs = [asked(*protocol.order_pair(name, other)) for other in others]
        store.claim_pairs(KIND, name, pairs)

    threads = [
        threading.Thread(target=reserve, args=each) for each in zip(names, stores, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [pair for name in names for pair in stores[0].list_claimed(KIND, name)]
    assert len(won) == len(set(won)) == 28


def test_the_file_of_the_answers_is_shared(tmp_path: Path) -> None:
    pairs = SqliteSkillPairs(tmp_path / "answers.db")
    answers = SqliteAnswerStore(tmp_path / "answers.db")
    pairs.save_verdicts(KIND, [verdict("a", "b", "conflict")])
    answers.save_refinements(KIND, {"a": {"asked": 1}})
    assert answers.get_refinements(KIND, ["a"]) == {"a": {"asked": 1}}
    assert list(pairs.list_linked(KIND)) == ["a", "b"]
    pairs.close()
    answers.close()


# -- rejections


def test_pairs_that_queries_compare_are_counted(store: SkillPairStore) -> None:
    store.record("q1", {("lib:a", "lib:b", REDUNDANT)})
    store.record("q2", {("lib:a", "lib:b", REDUNDANT), ("lib:a", "lib:c", REDUNDANT)})
    store.record("q3", {("lib:a", "lib:b", INCOMPATIBLE)})
    assert store.list_rejected_pairs(2, 10) == [RejectedPair(("lib:a", "lib:b"), REDUNDANT, 2)]
    assert store.list_rejected_pairs(1, 10) == [
        RejectedPair(("lib:a", "lib:b"), REDUNDANT, 2),
        RejectedPair(("lib:a", "lib:b"), INCOMPATIBLE, 1),
        RejectedPair(("lib:a", "lib:c"), REDUNDANT, 1),
    ]
    assert len(store.list_rejected_pairs(1, 2)) == 2


def test_a_query_counts_once(reopen: Reopen) -> None:
    for _ in range(3):
        reopen().record("q1", {("lib:a", "lib:b", REDUNDANT)})
    store = reopen()
    assert store.list_rejected_pairs(1, 10) == [RejectedPair(("lib:a", "lib:b"), REDUNDANT, 1)]


def test_the_oldest_queries_are_deleted(
    store: SkillPairStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_QUERIES", 2)
    for name in "abcd":
        store.record(f"query of {name}", {(f"lib:{name}", "lib:z", REDUNDANT)})
    kept = [pair.skill_ids[0] for pair in store.list_rejected_pairs(1, 10)]
    assert kept == ["lib:c", "lib:d"]


def test_pairs_of_a_query_are_those_it_states_and_those_it_rejects_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reasons = {"lib:b": REDUNDANT, "lib:a": REDUNDANT, "lib:c": INCOMPATIBLE, "lib:z": TOO_GENERAL}
    stated = [("lib:b", "lib:a", INCOMPATIBLE), ("lib:b", "lib:b", INCOMPATIBLE)]
    assert find_compared_pairs(reasons, [*stated, ("lib:a", "lib:z", TOO_GENERAL)]) == {
        ("lib:a", "lib:b", REDUNDANT),
        ("lib:a", "lib:b", INCOMPATIBLE),
    }
    monkeypatch.setattr(protocol, "MAX_PAIRS", 2)
    many = {f"lib:{number}": REDUNDANT for number in range(9)}
    assert len(find_compared_pairs(many, [])) == 2
    assert len(find_compared_pairs({}, [("lib:a", one, REDUNDANT) for one in many])) == 2


def test_verdicts_about_forgotten_contents_are_gone(store: SkillPairStore) -> None:
    store.save_verdicts(
        KIND, [verdict("a", "b", "conflict"), verdict("a", "c"), verdict("b", "c", "conflict")]
    )
    store.save_verdicts(KIND, [verdict("a", "e", "conflict")])
    store.claim_pairs(KIND, "a", [asked("a", "d")])
    assert store.forget(["a", "unknown"]) == 4
    assert sorted(store.list_linked(KIND)) == ["b", "c"]
    assert store.find_known(KIND, [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c")]) == {("b", "c")}
    assert store.find_links(KIND, ["a", "b"]) == {
        "a": [],
        "b": [verdict("b", "c", "conflict")],
    }
    assert store.list_claimed(KIND, "a") == []
