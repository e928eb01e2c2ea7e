"""What the reconciler sends again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.settings import Settings
from skills.events import QueryAsked, new_event
from tasks.ingest.maintain import resend_open_work
from tasks.policies import QUERY
from tasks.services import Services
from tests.support.samples.tiny import TinyEncoder
from workers.backend.embedded import EmbeddedBackend


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    settings = Settings(home=tmp_path / "home")
    with EmbeddedBackend(settings, writable=True, encoder=TinyEncoder()) as started:
        yield started.services


def test_queries_are_sent_again_unless_each_may_have_a_task(services: Services) -> None:
    asked = [new_event(QueryAsked(task=text), "skillbus/test") for text in ("bread", "soup")]
    for event in asked:
        services.journal.add_job(event, "query")
    sent: list[tuple[str, list[str]]] = []
    services.send_task = lambda name, ids: sent.append((name, list(ids)))
    services.coordinator.add_pending(QUERY.name, 2)
    assert resend_open_work(services)["queries"] == 0
    assert sent == []
    services.coordinator.add_pending(QUERY.name, -1)
    assert resend_open_work(services)["queries"] == 2
    assert sorted(sent) == sorted((QUERY.name, [event.id]) for event in asked)
