"""Answers come over the result queue and leave nothing behind there."""

from __future__ import annotations

from pathlib import Path

from skills.events import QueryAsked, SourceChanged
from tests.support.program.program import wait_for
from tests.support.samples.library import write_topics
from tests.support.samples.tiny import settle, tiny_backend


def test_the_result_queue_keeps_nothing(tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    asked = QueryAsked(task="fire a kiln", top=2)
    with tiny_backend(tmp_path / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        settle(backend)
        kept = backend.app.backend.client.cache
        before = len(kept)
        for _ in range(3):
            assert backend.answer_query(asked, "tests")["skills"]
        query_id = backend.submit_query(asked, "tests")
        wait_for(lambda: backend.services.journal.get_job(query_id).state == "done")
        assert len(kept) == before
