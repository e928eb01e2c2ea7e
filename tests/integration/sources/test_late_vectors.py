"""Skills are found by their words at once; their vectors are computed later, and once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from skills.events import QueryAsked, SourceChanged
from tests.support.program.program import wait_for
from tests.support.samples.library import TOPICS, write_skill, write_topics
from tests.support.samples.tiny import TinyEncoder, settle, tiny_backend
from workers.backend.embedded import EmbeddedBackend


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_topics(tmp_path / "crafts")


def _sync(backend: EmbeddedBackend, root: Path) -> None:
    event = backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
    wait_for(
        lambda: (
            backend.services.journal.get_job(event).state == "done"
            and not backend.get_progress()["waiting"]
        )
    )


def test_a_process_may_leave_the_vectors_to_a_later_one(tmp_path: Path, root: Path) -> None:
    home = tmp_path / "home"
    with tiny_backend(home, embeds="nothing") as backend:
        _sync(backend, root)
        counts = backend.graph.get_counts()
        assert (counts["published"], counts["with_vectors"]) == (len(TOPICS), 0)
        bundle = backend.answer_query(QueryAsked(task="read tide tables"), "tests")
        assert bundle["skills"][0]["skill_id"] == "crafts:tide-tables"
        (reason,) = bundle["degraded"]
        assert reason.startswith("100% of the candidates are ranked by words")
        status = backend.get_status()
        assert (status["with_vectors"], status["with_vectors_share"]) == (0, 0.0)
    with tiny_backend(home) as backend:
        settle(backend)
        assert backend.get_status()["with_vectors_share"] == 1.0
        bundle = backend.answer_query(QueryAsked(task="read tide tables"), "tests")
        assert bundle["degraded"] == []


def test_an_edit_of_the_body_keeps_known_vectors(tmp_path: Path, root: Path) -> None:
    encoded: list[str] = []

    def record(texts: Sequence[str]) -> None:
        encoded.extend(texts)

    with tiny_backend(tmp_path / "home", TinyEncoder(record), embeds="skills") as backend:
        folder = write_skill(root, "tide-tables", body="One line.\n")
        _sync(backend, root)
        wait_for(lambda: backend.graph.get_counts()["with_vectors"] == len(TOPICS))
        before = len(encoded)
        # Beyond the part of the body that is encoded.
        (folder / "notes.txt").write_text("Another file.", encoding="utf-8")
        _sync(backend, root)
        assert backend.graph.get_counts()["with_vectors"] == len(TOPICS), "at once"
        assert len(encoded) == before
        write_skill(root, "tide-tables", body="Another line.\n")
        _sync(backend, root)
        wait_for(lambda: backend.graph.get_counts()["with_vectors"] == len(TOPICS))
        assert len(encoded) == before + 1, "of its two texts one has changed"
