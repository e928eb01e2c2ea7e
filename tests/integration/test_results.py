"""Answers come over the result queue and leave nothing behind there."""

from __future__ import annotations

from pathlib import Path

from skills.events import QueryAsked, SourceChanged
from tests.support.library import write_topics
from tests.support.program import wait_for
from tests.support.tiny import settle, tiny_runtime


def test_the_result_queue_keeps_nothing(tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    asked = QueryAsked(task="fire a kiln", top=2)
    with tiny_runtime(tmp_path / "home") as runtime:
        runtime.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        settle(runtime)
        kept = runtime.app.backend.client.cache
        before = len(kept)
        for _ in range(3):
            assert runtime.answer(asked, "tests")["skills"]
        query_id = runtime.ask(asked, "tests")
        wait_for(lambda: runtime.services.journal.job(query_id).state == "done")
        assert len(kept) == before
