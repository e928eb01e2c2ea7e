"""What every `SkillPairStore` does. A new implementation adds its opener to `reopen`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.server_settings import ServerSettings
from skills.bundle.rejection import RejectionReason
from tasks.broker.redis_connection import connect
from tasks.language_model.answer_store import RefinementKind
from tasks.language_model.skill_pairs import protocol
from tasks.language_model.skill_pairs.protocol import (
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


def verdict(one: str, other: str, kind: str = "", **values: object) -> PairVerdict:
    given: dict[str, object] = {"type": kind, "evidence": "line 3: “ünd”" if kind else ""}
    return PairVerdict((one, other), (f"lib:{one}", f"lib:{other}"), **(given | values))  # type: ignore[arg-type]  # keywords


# -- verdicts


def test_pairs_with_a_verdict_are_known(store: SkillPairStore) -> None:
    store.save_verdicts(KIND, [verdict("a", "c", "conflict"), verdict("b", "c")])
    pairs = [("a", "c"), ("b", "c"), ("c", "d")]
    assert store.find_known(KIND, pairs) == set(pairs[:2])
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
    store.save_verdicts(KIND, [verdict("a", "b")])
    store.save_verdicts(KIND, [verdict("a", "b", "conflict")])
    assert store.find_links(KIND, ["a"]) == {"a": []}


def test_pairs_that_an_earlier_version_stored_without_a_verdict_are_unknown(tmp_path: Path) -> None:
    store = SqliteSkillPairs(tmp_path / "answers.db")
    with sqlite3.connect(tmp_path / "answers.db") as connection:
        connection.execute(
            "INSERT INTO pair_verdicts (model, version, one, other, one_id, other_id, asker, place)"
            " VALUES ('model', 1, 'a', 'b', 'lib:a', 'lib:b', 'a', 0)"
        )
    connection.close()
    assert store.find_known(KIND, [("a", "b")]) == set()
    store.save_verdicts(KIND, [verdict("a", "b", "conflict")])
    assert store.find_links(KIND, ["a"]) == {"a": [verdict("a", "b", "conflict")]}
    store.close()


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
    store.save_verdicts(KIND, [verdict("a", "d"), verdict("a", "e", "conflict")])
    assert store.forget(["a", "unknown"]) == 4
    assert sorted(store.list_linked(KIND)) == ["b", "c"]
    assert store.find_known(KIND, [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c")]) == {("b", "c")}
    assert store.find_links(KIND, ["a", "b"]) == {
        "a": [],
        "b": [verdict("b", "c", "conflict")],
    }
