"""Which git sources are fetched without an event from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.settings import Settings
from graph.records import Source
from tasks.ingest import poll
from tasks.policies import FETCH
from tasks.services import Services
from tests.support.samples.tiny import TinyEncoder
from workers.backend.embedded import EmbeddedBackend


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    settings = Settings(home=tmp_path / "home")
    with EmbeddedBackend(settings, writable=True, encoder=TinyEncoder()) as started:
        yield started.services


def test_a_source_is_not_requested_again_before_its_fetch_has_ended(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll, "_MIN_INTERVAL_SECONDS", 0.0)
    sent: list[tuple[str, list[str]]] = []
    services.send_task = lambda name, ids: sent.append((name, list(ids)))
    for name in ("crafts", "docs"):
        services.graph.save_source(Source(name, "git", f"https://example.org/{name}.git"))
    assert [poll.poll_sources(services) for _ in range(3)] == [2, 0, 0]
    waiting = services.journal.list_open_jobs("event")
    assert len(waiting) == 2
    assert sent == [(FETCH.name, waiting[:1])]
    services.journal.fail_job(waiting[0], "an error that the source does not show")
    assert [poll.poll_sources(services) for _ in range(2)] == [1, 0]
    (again,) = set(services.journal.list_open_jobs("event")) - set(waiting)
    contents = [services.journal.get_job(one).event.data for one in (waiting[0], again)]
    assert contents[0] == contents[1]


def test_a_fetch_by_a_clock_that_was_ahead_does_not_stop_the_polls(services: Services) -> None:
    later = time.time() + 7_200
    address = "https://example.org/crafts.git"
    source = Source("crafts", "git", address, last_attempt=later, last_success=later)
    services.graph.save_source(source)
    assert poll.poll_sources(services) == 1
    (event,) = services.journal.list_open_jobs("event")
    services.journal.finish_job(event)
    assert poll.poll_sources(services) == 0
