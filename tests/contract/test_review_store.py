"""What every `ReviewStore` does. A new implementation adds its opener to `reopen`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from config.errors import SkillbusError
from search.elastic.connection import ElasticsearchConnection
from search.elastic.review_store import ElasticsearchReviewStore
from search.review_store import ReviewStore
from skills.review import ReviewKind, ReviewRecord, ReviewSlot
from tasks.history.sqlite_reviews import SqliteReviewStore
from tests.support.samples.reopened import reopening
from tests.support.servers.elastic import ElasticIndices
from tests.support.servers.proxy import Fault, proxying

Reopen = Callable[[], ReviewStore]
SKILL = "lib:über/kiln"


@pytest.fixture(params=["elasticsearch", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    if request.param == "elasticsearch":
        indices: ElasticIndices = request.getfixturevalue("elastic_indices")
        settings = indices.shared_settings("reviews")

    def open_store() -> ReviewStore:
        if request.param == "sqlite":
            return SqliteReviewStore(tmp_path / "history.db")
        return ElasticsearchReviewStore(settings)

    with reopening(open_store) as opened:
        yield opened
        store = opened()
        store.forget(list(store.get_all().by_skill))


@pytest.fixture
def store(reopen: Reopen) -> ReviewStore:
    return reopen()


def waiver(
    rule: str = "unread", content_hash: str = "a", skill_id: str = SKILL, reason: str = "wünscht"
) -> ReviewRecord:
    return ReviewRecord(
        *(skill_id, content_hash, ReviewKind.WAIVER, rule, ("0f", "1e"), 4),
        *("local:ana", reason, 1_000.25),
    )


def update(kind: ReviewKind, content_hash: str = "a") -> ReviewRecord:
    return ReviewRecord(SKILL, content_hash, kind, seq=7, principal="oidc:7", recorded=2.0)


def test_an_empty_store_has_nothing(store: ReviewStore) -> None:
    version = store.get_version()
    assert store.get_all().by_skill == {}
    assert store.get([SKILL]).by_skill == {}
    assert store.get([]).by_skill == {}
    assert store.remove(SKILL, [waiver().slot]) == []
    store.save([])
    store.forget([SKILL])
    store.forget([])
    store.overwrite_deleted()
    assert store.get_version() == version


def test_no_index_is_made_by_a_write_after_the_index_is_gone(elastic: ElasticIndices) -> None:
    settings = elastic.settings()
    store = ElasticsearchReviewStore(settings)
    connection = ElasticsearchConnection(settings)
    every = f"{settings.elasticsearch_prefix}-*"
    try:
        store.save([waiver()])
        with connection.translate_errors() as client:
            client.indices.delete(index=list(client.indices.get(index=every)))
            with pytest.raises(SkillbusError):
                store.save([waiver("b-rule")])
            assert dict(client.indices.get(index=every)) == {}
    finally:
        store.close()
        connection.close()


def test_records_are_read_as_they_were_saved(reopen: Reopen) -> None:
    records = [
        waiver("b-rule"),
        waiver("a-rule"),
        waiver("a-rule", "b"),
        update(ReviewKind.CONFIRMATION),
        update(ReviewKind.WAITING),
        waiver(skill_id="lib:other"),
    ]
    reopen().save(records)
    wanted = sorted(records[:5], key=lambda one: one.slot)
    store = reopen()
    assert store.get([SKILL, "lib:none", SKILL]).by_skill == {SKILL: tuple(wanted)}
    assert store.get_all().by_skill == {SKILL: tuple(wanted), "lib:other": (records[5],)}


def test_a_slot_has_one_record(store: ReviewStore) -> None:
    store.save([update(ReviewKind.WAITING), waiver()])
    store.save([update(ReviewKind.APPROVAL), waiver(reason="better")])
    store.save([update(ReviewKind.WAITING), update(ReviewKind.WAITING, "b")], only_new=True)
    assert set(store.get([SKILL]).by_skill[SKILL]) == {
        update(ReviewKind.APPROVAL),
        update(ReviewKind.WAITING, "b"),
        waiver(reason="better"),
    }


def test_an_update_that_waits_gets_a_higher_seq(store: ReviewStore) -> None:
    waiting = update(ReviewKind.WAITING)
    store.save([waiting], only_new=True)
    for seq in (9, 8):
        store.save([replace(waiting, seq=seq)], only_new=True)
        assert store.get([SKILL]).by_skill[SKILL] == (replace(waiting, seq=9),)
    store.save([update(ReviewKind.APPROVAL)])
    store.save([replace(waiting, seq=12)], only_new=True)
    assert store.get([SKILL]).by_skill[SKILL] == (update(ReviewKind.APPROVAL),)


def test_removed_records_are_returned(store: ReviewStore) -> None:
    store.save([waiver("a-rule"), waiver("b-rule"), waiver("a-rule", "b")])
    slots = [waiver("a-rule").slot, ReviewSlot("c", "safety")]
    assert store.remove(SKILL, slots) == [waiver("a-rule")]
    assert store.remove(SKILL, slots) == []
    assert set(store.get_all().by_skill[SKILL]) == {waiver("b-rule"), waiver("a-rule", "b")}


def test_removed_records_are_returned_also_if_the_answer_was_lost(
    elastic: ElasticIndices, elasticsearch_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client repeats a request whose connection was lost: then the records are gone already."""
    with proxying(elasticsearch_url) as proxy:
        store = ElasticsearchReviewStore(elastic.settings(elasticsearch=proxy.url))
        store.save([one := waiver()])
        faults: Iterator[Fault | None] = iter([None, "cut"])  # the read, and the write
        monkeypatch.setattr(proxy, "choose", lambda: next(faults, None))
        assert store.remove(SKILL, [one.slot]) == [one]
        assert next(faults, None) is None
        assert store.get([SKILL]).by_skill == {}
        assert store.remove(SKILL, [one.slot]) == []
        store.close()


def test_what_the_policy_asks_raises_the_version_that_other_processes_see(reopen: Reopen) -> None:
    store, other = reopen(), reopen()
    seen = [other.get_version()]

    def is_raised() -> bool:
        seen.append(other.get_version())
        assert other.get_all().version == seen[-1]
        assert other.get([SKILL]).version == seen[-1]
        return seen[-1] > seen[-2]

    store.save([update(ReviewKind.WAITING)])
    assert not is_raised()
    assert other.get_all().by_skill == {SKILL: (update(ReviewKind.WAITING),)}
    store.save([waiver()])
    assert is_raised()
    store.save([update(ReviewKind.CONFIRMATION)])
    assert is_raised()
    store.save([waiver()], only_new=True)
    assert not is_raised()
    store.save([waiver(reason="better")])
    assert is_raised()
    store.remove(SKILL, [ReviewSlot("b", "safety")])
    assert not is_raised()
    store.remove(SKILL, [waiver().slot])
    assert is_raised()
    store.save([waiver()])
    assert is_raised()
    store.forget([SKILL])
    assert is_raised()
    store.save([update(ReviewKind.APPROVAL)])
    store.forget([SKILL])
    assert not is_raised()


@pytest.mark.usefixtures("no_wait_for_leases")
def test_skills_are_forgotten_for_good(reopen: Reopen) -> None:
    store = reopen()
    store.save([waiver(), update(ReviewKind.APPROVAL), waiver(skill_id="lib:other")])
    store.forget([SKILL, "lib:none"])
    store.overwrite_deleted()
    assert reopen().get_all().by_skill == {"lib:other": (waiver(skill_id="lib:other"),)}


def test_all_are_read_in_order(store: ReviewStore) -> None:
    names = [f"lib:{number:04}" for number in range(1_200)]
    store.save([waiver(skill_id=name) for name in reversed(names)])
    assert list(store.get_all().by_skill) == names
    assert len(store.get(names).by_skill) == len(names)


def test_concurrent_writers_lose_nothing(store: ReviewStore) -> None:
    rules = [f"rule-{number:02}" for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda rule: store.save([waiver(rule)]), rules))
    assert [one.rule for one in store.get([SKILL]).by_skill[SKILL]] == rules


def test_a_store_whose_index_is_being_created_is_waited_for(elastic: ElasticIndices) -> None:
    settings = elastic.settings()
    store = ElasticsearchReviewStore(settings)
    index = f"{settings.elasticsearch_prefix}-review"
    connection = ElasticsearchConnection(settings)
    unallocated = {"index.routing.allocation.enable": "none"}
    with connection.translate_errors() as client:
        client.indices.create(index=index, settings=unallocated, wait_for_active_shards=0)
    starting = threading.Timer(
        1.0,
        lambda: connection.client.indices.put_settings(
            index=index, settings={"index.routing.allocation.enable": "all"}
        ),
    )
    starting.start()
    assert store.get([SKILL]).by_skill == {}
    starting.join()
    connection.close()
    store.close()
