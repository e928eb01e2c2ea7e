"""Celery's tasks: what a process that is being ended makes of an error."""

from __future__ import annotations

from typing import Any

import pytest
from billiard import common

from tasks.broker.broker_config import memory_broker_config
from tasks.celery_app import create_app
from tasks.policies import INGEST
from tasks.services import Services


def interrupted() -> Services:
    """Stands for the services of a process that is ended while they are opened."""
    try:
        raise SystemExit
    finally:
        raise KeyError("a connection that was being replaced")


@pytest.fixture
def task() -> Any:
    app = create_app(interrupted, [INGEST.queue], memory_broker_config())
    return app.tasks[INGEST.name]


def test_an_error_in_place_of_system_exit_ends_the_process(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_should_have_exited", [True])
    with pytest.raises(SystemExit):
        task(["crafts:bread"])


def test_other_errors_are_the_tasks_own(task: Any) -> None:
    with pytest.raises(KeyError):
        task(["crafts:bread"])
