"""A library that commands open themselves, or that `serve` answers for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.support.program.program import ROOT, ForkServer, Skillbus
from tests.support.samples.library import write_topics


@pytest.fixture(scope="session")
def examples(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    """The example skills, one of them broken, synced as source `examples`; tests only ask them."""
    skillbus = Skillbus(fork_server, tmp_path_factory.mktemp("examples") / "home")
    skillbus("sync", str(ROOT / "examples" / "skills"), "--source", "examples", code=4)
    return skillbus


@pytest.fixture(scope="module", params=["alone", "served"])
def crafts_library(
    request: pytest.FixtureRequest,
    fork_server: ForkServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Skillbus]:
    """Ten skills about crafts, a library for each test file and each way to run commands."""
    base = tmp_path_factory.mktemp(f"crafts-{request.param}")
    made = Skillbus(fork_server, base / "home")
    made("sync", str(write_topics(base / "crafts")))
    with made.serving() if request.param == "served" else nullcontext():
        yield made
