"""An embedded backend that is stopped while its workers are starting."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from celery.worker.consumer.tasks import Tasks
from kombu.common import QoS

from config.settings import Settings
from tests.support.samples.tiny import TinyEncoder
from workers.backend.embedded import EmbeddedBackend


@pytest.mark.parametrize(("kind", "name"), [(Tasks, "start"), (QoS, "update")])
def test_a_worker_that_is_starting_ends_without_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: type,
    name: str,
) -> None:
    call = getattr(kind, name)

    def call_late(*arguments: Any) -> Any:
        time.sleep(0.3)
        return call(*arguments)

    monkeypatch.setattr(kind, name, call_late)
    backend = EmbeddedBackend(Settings(home=tmp_path), writable=True, encoder=TinyEncoder())
    with caplog.at_level(logging.CRITICAL):
        backend.start()
        backend.stop()
    assert caplog.messages == []
