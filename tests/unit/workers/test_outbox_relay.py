"""Replies that wait for skills, and replies that another process has sent meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from config.settings import Settings
from skills.events import SkillUpserted, new_event
from tasks.journal.protocol import job_id
from tasks.metrics_recorder import NullMetrics
from tests.support.samples.tiny import TinyEncoder
from workers.backend.embedded import EmbeddedBackend
from workers.queue import outbox_relay
from workers.queue.broker import get_submission_broker
from workers.queue.outbox_relay import OutboxRelay


def test_an_event_that_another_process_has_answered_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_LEASE_SECONDS", "_WAIT_SECONDS"):
        monkeypatch.setattr(outbox_relay, name, 0.05)
    settings = Settings(submissions={"broker": "redis://127.0.0.1:1/0"})
    backend = EmbeddedBackend(
        settings.model_copy(update={"home": tmp_path}), writable=True, encoder=TinyEncoder()
    )
    journal, waits = backend.journal, list[float]()
    broker = get_submission_broker(settings)
    relay = OutboxRelay(backend, broker, threading.Event(), NullMetrics())
    skill = "crafts:kiln"
    event = new_event(SkillUpserted(skill_id=skill), "test/outside")
    event = event.model_copy(update={"replyto": "skillbus.replies.me"})
    job = job_id(event)
    backend.graph.request_ingest([(skill, "crafts", "kiln")], backend.graph.allocate_sequence(1)[0])
    journal.add_job(event, "event")
    journal.finish_job(job)
    relay._send_pending()
    assert journal.list_pending_replies() == [job], "the skill is not ingested yet"
    journal.mark_replied(job)
    wait = journal.wait_for_pending_reply

    def record(seconds: float) -> None:
        waits.append(seconds)
        wait(seconds)

    monkeypatch.setattr(journal, "wait_for_pending_reply", record)
    relay._send_pending()
    assert set(waits) == {0.05}
    backend.stop()
