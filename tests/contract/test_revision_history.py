"""What every `RevisionHistory` does. A new implementation adds its opener to `reopen`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from search.elastic.revision_history import ElasticsearchRevisionHistory
from search.revision_history import HistoryLimits, KeptRevision, Pin, RevisionHistory
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tasks.history.sqlite import SqliteRevisionHistory
from tests.support.samples.reopened import reopening
from tests.support.servers.elastic import ElasticIndices
from tests.support.servers.proxy import Fault, proxying

Reopen = Callable[..., RevisionHistory]
LIMITS = HistoryLimits(3, 1_000_000)
SKILL = "lib:über/kiln"


@pytest.fixture(params=["elasticsearch", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    if request.param == "elasticsearch":
        indices: ElasticIndices = request.getfixturevalue("elastic_indices")
        settings = indices.shared_settings("history")
    limits = LIMITS

    def open_history() -> RevisionHistory:
        if request.param == "sqlite":
            return SqliteRevisionHistory(tmp_path / "history.db", limits)
        return ElasticsearchRevisionHistory(settings, limits)

    with reopening(open_history) as opened:

        def reopened(given: HistoryLimits = LIMITS) -> RevisionHistory:
            nonlocal limits
            limits = given
            return opened()

        yield reopened
        history = opened()
        history.forget(list({one.key.skill_id for one in history.read_all()}))


@pytest.fixture
def history(reopen: Reopen) -> RevisionHistory:
    return reopen()


def revision(seq: int, text: str = "", skill_id: str = SKILL) -> KeptRevision:
    text = text or f"Text {seq}. ünd \N{FIRE}"
    content = f"---\nname: kiln\ndescription: Fires clay\n---\n# Kiln\n\n{text}\n"
    parsed = parse_skill("kiln", content.encode())
    return KeptRevision(RevisionKey(skill_id, seq), f"hash of {text}", parsed, 1_000.5 + seq)


def seqs(history: RevisionHistory, skill_id: str = SKILL) -> list[int]:
    return [one.key.seq for one in history.list_revisions(skill_id)]


def test_an_empty_history_has_nothing(history: RevisionHistory) -> None:
    assert history.list_revisions(SKILL) == []
    assert history.find_kept([RevisionKey(SKILL, 1)]) == set()
    assert history.forget([SKILL]) == 0
    assert history.max_seq() == 0
    assert list(history.read_all()) == []
    history.keep([])
    history.overwrite_deleted()


def test_revisions_are_read_as_they_were_kept(reopen: Reopen) -> None:
    kept = [revision(2), revision(9), revision(5)]
    reopen().keep(kept)
    history = reopen()
    assert history.list_revisions(SKILL) == [revision(9), revision(5), revision(2)]
    assert history.find_kept([RevisionKey(SKILL, 5), RevisionKey(SKILL, 6)]) == {
        RevisionKey(SKILL, 5)
    }
    assert history.max_seq() == 9


def test_a_kept_revision_is_not_changed(history: RevisionHistory) -> None:
    history.keep([revision(1, "first")])
    history.keep([revision(1, "other")])
    assert history.list_revisions(SKILL) == [revision(1, "first")]


def test_the_newest_are_kept_in_any_order(history: RevisionHistory) -> None:
    orders = list(itertools.permutations([1, 2, 3, 4]))
    for step in (0, 1, 2, 3) * 2:
        history.keep([revision(one[step], skill_id=f"lib:{n}") for n, one in enumerate(orders)])
    for number in range(len(orders)):
        assert seqs(history, f"lib:{number}") == [4, 3, 2]


def test_revisions_of_one_content_count_once(history: RevisionHistory) -> None:
    history.keep([revision(1, "a"), revision(2, "b"), revision(3, "b"), revision(4, "a")])
    assert seqs(history) == [4, 3, 1]


def test_bytes_are_limited_but_the_newest_stays(reopen: Reopen) -> None:
    history = reopen(HistoryLimits(100, 1_000))
    history.keep([revision(seq) for seq in range(1, 30)])
    few = seqs(history)
    assert few == list(range(29, 29 - len(few), -1))
    assert 1 <= len(few) < 20
    large = " ".join(f"{n * 7919 % 100_003:x}" for n in range(5_000))
    history.keep([revision(30, large)])
    assert seqs(history) == [30]


def test_no_limit_of_revisions_keeps_none(reopen: Reopen) -> None:
    reopen().keep([revision(1), revision(2)])
    history = reopen(HistoryLimits(0, 1_000_000))
    history.keep([revision(3)])
    assert seqs(history) == []


@pytest.mark.usefixtures("no_wait_for_leases")
def test_skills_are_forgotten_for_good(reopen: Reopen) -> None:
    history = reopen()
    history.keep([revision(1), revision(2), revision(3, skill_id="lib:other")])
    assert history.forget([SKILL, "lib:none", SKILL]) == 2
    history.overwrite_deleted()
    assert seqs(reopen()) == []
    assert list(reopen().read_all()) == [revision(3, skill_id="lib:other")]


def test_a_content_that_is_held_keeps_its_seq(history: RevisionHistory) -> None:
    assert history.hold(revision(5, "a"), above=0) == 5
    for seq in (4, 7):  # of an ingest that began before the first had held it
        assert history.hold(revision(seq, "a"), above=0) == 5
    assert seqs(history) == [5]
    assert history.hold(revision(8, "b"), above=0) == 8
    assert history.hold(revision(9, "a"), above=0) == 9  # the source went back
    assert history.hold(revision(11, "a"), above=10) == 11  # 10 was published since
    assert seqs(history) == [11, 8, 5]


def test_all_are_read_in_order(history: RevisionHistory) -> None:
    wanted = [revision(seq, skill_id=f"lib:{name:03}") for name in range(150) for seq in (1, 2)]
    history.keep(wanted[::-1])
    assert list(history.read_all()) == wanted


def test_concurrent_writers_lose_nothing(reopen: Reopen) -> None:
    history = reopen(HistoryLimits(100, 10_000_000))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seq: history.keep([revision(seq)]), range(1, 13)))
    assert seqs(history) == list(range(12, 0, -1))


# -- pins


def pin(seq: int, skill_id: str = SKILL, reason: str = "tested") -> Pin:
    return Pin(skill_id, seq, f"hash {seq}", reason, 5.5)


def test_a_pin_is_stored_replaced_and_removed(reopen: Reopen) -> None:
    history = reopen()
    assert not history.set_pin(pin(1))
    assert not history.remove_pin(SKILL)
    history.keep([revision(1), revision(2), revision(1, skill_id="lib:other")])
    assert history.set_pin(pin(1))
    assert history.set_pin(pin(2, reason="w\u00fcnscht"))
    assert history.set_pin(pin(1, "lib:other"))
    assert not history.set_pin(pin(9))
    wanted = {"lib:other": pin(1, "lib:other"), SKILL: pin(2, reason="w\u00fcnscht")}
    assert reopen().get_pins() == wanted
    assert history.get_pins([SKILL, "lib:none"]) == {SKILL: wanted[SKILL]}
    assert history.get_pins([]) == {}
    assert history.remove_pin(SKILL)
    assert list(history.get_pins()) == ["lib:other"]
    history.forget(["lib:other"])
    assert history.get_pins() == {}


def test_a_pinned_revision_is_kept_beyond_the_limit(history: RevisionHistory) -> None:
    history.keep([revision(1)])
    assert history.set_pin(pin(1))
    history.keep([revision(seq) for seq in range(2, 9)])
    assert seqs(history) == [8, 7, 6, 1]
    assert history.get_pins() == {SKILL: pin(1)}
    history.remove_pin(SKILL)
    assert seqs(history) == [8, 7, 6]


def test_a_pin_was_removed_also_if_the_answer_was_lost(
    elastic: ElasticIndices, elasticsearch_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client repeats a request whose connection was lost: then the pin is gone already."""
    with proxying(elasticsearch_url) as proxy:
        history = ElasticsearchRevisionHistory(elastic.settings(elasticsearch=proxy.url), LIMITS)
        history.keep([revision(1)])
        history.set_pin(Pin(SKILL, 1, "a", "", 1.0))
        faults: Iterator[Fault | None] = iter([None, "cut"])  # the read, and the write
        monkeypatch.setattr(proxy, "choose", lambda: next(faults, None))
        assert history.remove_pin(SKILL)
        assert next(faults, None) is None
        assert history.get_pins() == {}
        assert not history.remove_pin(SKILL)
        history.close()
