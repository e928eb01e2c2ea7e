"""A library that many tests ask, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.library import write_skill, write_topics


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten skills of the test's own."""
    return write_topics(tmp_path / "crafts")


@pytest.fixture(scope="session")
def library(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    """Ten skills, one of them licensed and one broken, synced; tests only ask it."""
    base = tmp_path_factory.mktemp("library")
    root = write_topics(base / "crafts")
    write_skill(root, "kiln-firing", license="MIT")
    (root / "broken").mkdir()
    (root / "broken" / "SKILL.md").write_bytes(b"")
    skillbus = Skillbus(fork_server, base / "home")
    skillbus("sync", str(root), code=4)
    return skillbus


@pytest.fixture
def copied(library: Skillbus, tmp_path: Path) -> Skillbus:
    """A copy of the library of all tests, to be changed."""
    return library.copy(tmp_path / "home")
