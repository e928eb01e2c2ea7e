"""The shared collections of real skills, which are not part of the repository."""

from __future__ import annotations

import fcntl
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT.parent / "shared" / "data"
ARCHIVES = {
    "gt": DATA / "skillsbench-skills.tar.xz",
    "community": DATA / "community-12k.tar.xz",
    "trig": DATA / "triggers-skills-dev.tar.xz",
}
"""Collections by the source id that skills have in data of tests: folders `PATH/SKILL.md`, and
`index.jsonl`."""

LABELLED = [DATA / name for name in ("roles-dev.json", "tasks-dev.jsonl", "triggers-dev.jsonl")]

needs_collections = pytest.mark.skipif(
    os.environ.get("CI") != "true"
    and not all(path.exists() for path in (*ARCHIVES.values(), *LABELLED)),
    reason="the shared skill collections are not here",
)

Collections = Callable[[str], Path]


@pytest.fixture(scope="session")
def real_skills(tmp_path_factory: pytest.TempPathFactory) -> Collections:
    """The folder of a collection, for reading: all processes of the run share it, since unpacking
    the largest one takes seconds."""
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # then it is one process's part of the run's folder
        run = run.parent

    def unpack(collection: str) -> Path:
        folder = run / f"real-skills-{collection}"
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                part = folder.with_suffix(".part")
                with tarfile.open(ARCHIVES[collection]) as members:
                    members.extractall(part, filter="fully_trusted")  # checks take a third of it
                part.rename(folder)
        return folder

    return unpack


def skill_file(skill_id: str, real_skills: Collections) -> Path:
    """The `SKILL.md` of a skill of a collection."""
    collection, _, path = skill_id.partition(":")
    return real_skills(collection) / path / "SKILL.md"
