"""A sync of one source while the root of another, with open requests, is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from skills.events import SourceChanged
from tasks.sources.directory import describe_missing_root
from tests.support.samples.library import write_skill, write_topics
from tests.support.samples.tiny import settle, tiny_backend
from workers.cli.library.sync import EMBEDDED, run_sync


@pytest.mark.timeout(180)
def test_the_missing_root_of_another_source_does_not_fail_a_sync(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = write_topics(tmp_path / "away")
    root = tmp_path / "crafts"
    write_skill(root, "loom-setup", "Set up a loom")
    with tiny_backend(tmp_path / "home") as backend:
        backend.submit(SourceChanged(source_id="away", root=str(away)), "tests")
        settle(backend)
        entries = backend.graph.get_entries()
        away.rename(tmp_path / "elsewhere")
        wanted = [(one.skill_id, one.source_id, one.path) for one in entries]
        # As an interrupted sync leaves them.
        backend.graph.request_ingest(wanted, backend.graph.allocate_sequence(1)[0])
    with tiny_backend(tmp_path / "home") as backend:
        for _ in range(2):
            report = run_sync(backend, SourceChanged(source_id="crafts", root=str(root)), EMBEDDED)
            assert (report["found"], report["published"]) == (1, len(entries) + 1)
            warnings = [one for one in capsys.readouterr().err.splitlines() if "warning" in one]
            assert warnings == [f"warning: {describe_missing_root(str(away))}"]
