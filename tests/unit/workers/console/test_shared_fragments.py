"""Fragments of pages: rendered once for readers with the same rights, never for others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from markupsafe import Markup

from workers.console import shared_fragments as module
from workers.console.shared_fragments import KEPT_SECONDS, SharedFragments
from workers.http.authentication import Caller
from workers.http.tokens import TokenScope

ANA = Caller("ana", TokenScope.READ, groups=frozenset({"masons"}))
ADMIN = Caller("ops", TokenScope.ADMIN)


class Clock:
    """A clock that stands still until it is moved."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Renderer:
    """Renders a number that grows."""

    count = 0

    def __call__(self) -> Markup:
        self.count += 1
        return Markup(self.count)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_fragment_is_rendered_again_once_it_is_old(clock: Clock) -> None:
    fragments, render = SharedFragments(), Renderer()
    assert fragments.get(ANA, "work", render) == "1"
    clock.now += KEPT_SECONDS
    assert fragments.get(ANA, "work", render) == "1"
    clock.now += 0.01
    assert fragments.get(ANA, "work", render) == "2"


def test_a_fresh_one_is_rendered_now_and_sent_to_those_that_follow(clock: Clock) -> None:
    fragments, render = SharedFragments(), Renderer()
    fragments.get(ANA, "work", render)
    clock.now += 0.01
    assert fragments.get(ANA, "work", render, fresh=True) == "2"
    assert fragments.get(ANA, "work", render) == "2"


@pytest.mark.parametrize(
    "other",
    [
        Caller("ben", TokenScope.READ, groups=frozenset({"masons"})),
        Caller("ana", TokenScope.WRITE, groups=frozenset({"masons"})),
        Caller("ana", TokenScope.READ),
        Caller("ana", TokenScope.READ, groups=frozenset({"masons", "wary"})),
        ADMIN,
    ],
)
def test_readers_with_other_rights_share_none(clock: Clock, other: Caller) -> None:
    fragments, render = SharedFragments(), Renderer()
    assert fragments.get(ANA, "work", render) == "1"
    assert fragments.get(other, "work", render) == "2"
    assert fragments.get(ANA, "other", render) == "3"


def test_admins_share_all(clock: Clock) -> None:
    fragments, render = SharedFragments(), Renderer()
    other = Caller("other", TokenScope.ADMIN)
    assert fragments.get(ADMIN, "work", render) == fragments.get(other, "work", render) == "1"


def test_readers_that_come_at_once_wait_for_one(clock: Clock) -> None:
    fragments, render = SharedFragments(), Renderer()
    begun, goes_on = threading.Event(), threading.Event()

    def render_slowly() -> Markup:
        begun.set()
        assert goes_on.wait(60)
        return render()

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(fragments.get, ANA, "work", render_slowly)
        assert begun.wait(60)
        others = [pool.submit(fragments.get, ANA, "work", render_slowly) for _ in range(2)]
        goes_on.set()
        assert [one.result(60) for one in (first, *others)] == ["1"] * 3


def test_a_failure_is_not_kept(clock: Clock) -> None:
    fragments, render = SharedFragments(), Renderer()
    with pytest.raises(ZeroDivisionError):
        fragments.get(ANA, "work", lambda: Markup(1 // 0))
    assert fragments.get(ANA, "work", render) == "1"


def test_old_ones_of_many_readers_are_dropped(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_FRAGMENTS", 3)
    fragments, render = SharedFragments(), Renderer()
    for number in range(10):
        fragments.get(ANA, number, render)
        clock.now += 10
    assert len(fragments._fragments) <= 3
