"""What tasks share in a process: values made once, and who lets whom pass."""

from __future__ import annotations

import threading
import time

import pytest

from tasks.coordination.local import LocalCoordinator
from tasks.policies import EMBED_SECTIONS, INGEST
from tasks.services import Lazy


def test_a_lazy_value_is_made_once() -> None:
    made: list[object] = []

    def make() -> object:
        time.sleep(0.01)
        made.append(object())
        return made[-1]

    lazy = Lazy(make)
    assert made == []
    seen: list[object] = []
    threads = [threading.Thread(target=lambda: seen.append(lazy.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert seen == made * 8


def test_a_lazy_value_that_failed_is_tried_again() -> None:
    outcomes = iter([OSError("not yet"), None])

    def make() -> str:
        error = next(outcomes)
        if error is not None:
            raise error
        return "made"

    lazy = Lazy(make)
    with pytest.raises(OSError, match="not yet"):
        lazy.get()
    assert lazy.get() == "made"


def test_counts_never_fall_below_none() -> None:
    coordinator = LocalCoordinator()
    assert coordinator.add_pending(INGEST.name, 2) == 2
    assert coordinator.add_pending(INGEST.name, -3) == 0
    assert coordinator.add_pending(EMBED_SECTIONS.name, -1) == 0


def test_bulk_work_goes_on_when_the_last_query_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.coordination.local.MAX_YIELD_SECONDS", 120.0)
    coordinator = LocalCoordinator()
    with coordinator.track_query():
        with coordinator.track_query():
            pass
        assert not coordinator.idle.is_set()
    with pytest.raises(ZeroDivisionError), coordinator.track_query():
        raise ZeroDivisionError
    started = time.monotonic()
    coordinator.yield_to_queries()
    assert time.monotonic() - started < 60
