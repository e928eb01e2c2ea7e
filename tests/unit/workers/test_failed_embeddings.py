"""Waiting for vectors, where the embedding of a skill has failed permanently."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from config.errors import PermanentError
from skills.events import SourceChanged
from tasks.policies import EMBED_SECTIONS, EMBED_SKILLS
from tests.support.program.program import wait_for
from tests.support.samples.library import write_skill, write_topics
from tests.support.samples.tiny import TinyEncoder, settle, tiny_backend
from workers.backend.embedded import EmbeddedBackend
from workers.cli.common import SyncProgress
from workers.cli.evaluation.options import _poll_until_embedded
from workers.cli.library.sync import EMBEDDED, SEARCHABLE, run_sync
from workers.cli.waiting import FailedEmbeddings


def refuse(texts: Sequence[str]) -> None:
    """Fail for good, as a model does that cannot encode a text."""
    if any("unencodable" in text for text in texts):
        raise PermanentError("the model cannot encode this text")


def count(backend: EmbeddedBackend) -> tuple[int, int]:
    with ExitStack() as stack:
        failed = FailedEmbeddings(backend.settings, backend.graph, stack)
        return failed.count(EMBED_SKILLS), failed.count(EMBED_SECTIONS)


@pytest.mark.timeout(120)
def test_waiting_ends_without_the_skills_that_cannot_be_embedded(tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    write_skill(root, "loom-setup", "Set up a loom", "Warp the unencodable loom.")
    content = SourceChanged(source_id="crafts", root=str(root))
    with tiny_backend(tmp_path / "home", TinyEncoder(refuse)) as backend:
        backend.submit(content, "tests")
        wait_for(lambda: count(backend)[1] == 1, 60)
        counts = backend.graph.get_counts
        wait_for(lambda: counts()["embedded"] == counts()["published"] - 1, 60)
        backend.coordinator.task_error = ""  # as the reconciler does; the skill is not sent again
        with ExitStack() as stack:
            failed = FailedEmbeddings(backend.settings, backend.graph, stack)
            waiting = threading.Thread(
                target=_poll_until_embedded,
                args=(backend, SyncProgress(), lambda: failed.count(EMBED_SECTIONS)),
                daemon=True,
            )
            waiting.start()
            waiting.join(10)
            assert not waiting.is_alive()
        for until in (SEARCHABLE, EMBEDDED):
            report = run_sync(backend, content, until)
            assert report["embedded"] == report["published"] - 1
        write_skill(root, "loom-setup", "Set up a loom", "Warp the loom.")
        backend.submit(content, "tests")
        settle(backend)
        assert count(backend) == (0, 0)
