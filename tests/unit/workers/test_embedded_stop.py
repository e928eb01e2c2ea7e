"""An embedded backend that is stopped while its workers are starting."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from celery.worker.consumer.tasks import Tasks

from config.settings import Settings
from tests.support.samples.tiny import TinyEncoder
from workers.backend.embedded import EmbeddedBackend


def test_a_worker_that_is_starting_ends_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = Tasks.start

    def start_late(step: Any, consumer: Any) -> None:
        time.sleep(0.3)
        start(step, consumer)

    monkeypatch.setattr(Tasks, "start", start_late)
    backend = EmbeddedBackend(Settings(home=tmp_path), writable=True, encoder=TinyEncoder())
    with caplog.at_level(logging.CRITICAL):
        backend.start()
        backend.stop()
    assert caplog.messages == []
