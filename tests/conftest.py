"""Fixtures of all tests that run the program."""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

# The processes of a run use every core already; threads of BLAS would wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest
import structlog

from tests.support.program import loopback_only
from tests.support.program.program import ForkServer, Skillbus

pytest_plugins = [
    "tests.support.servers.servers",
    "tests.support.servers.elastic",
    "tests.support.program.files_in_memory",
    "tests.support.program.secrecy",
    "tests.support.samples.real_skills",
]

gc.set_threshold(5_000)
"""The default of 700 new objects costs 2 % more processor time."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs like this, and the programs under test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

loopback_only.install()

# By default hypothesis fails a test whose example took long, as on a busy machine any may.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector off what is imported: it lives as long as the process, and every
    full collection would look through it again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the files of each folder evenly over a parallel run: some wait for servers most of the
    time, others keep a core busy."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    files = dict.fromkeys(item.path for item in items)
    folders = defaultdict(list)
    for path in files:
        folders[path.parent].append(path)
    places = {
        path: (number + 0.5) / len(paths)
        for paths in folders.values()
        for number, path in enumerate(paths)
    }
    items.sort(key=lambda item: places[item.path])  # stable: files and tests keep their order


@pytest.fixture(autouse=True)
def _no_real_address() -> Iterator[None]:
    """A test fails that wanted to leave this machine, even if it handled the error."""
    loopback_only.attempts.clear()
    yield
    assert not loopback_only.attempts, f"connections to {loopback_only.attempts}"


@pytest.fixture(autouse=True)
def _logging_is_restored() -> Iterator[None]:
    """A level that one test sets does not silence what the next one reads."""
    configuration = structlog.get_config()
    yield
    structlog.configure(**configuration)


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A process that has everything loaded, from which commands are forked."""
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # then it is one process's part of the run's folder
        run = run.parent
    server = ForkServer(tmp_path_factory.mktemp("commands"), run / "vectors.db")
    yield server
    server.close()


@pytest.fixture
def skillbus(fork_server: ForkServer, tmp_path: Path) -> Skillbus:
    """The command line on a home of the test's own."""
    return Skillbus(fork_server, tmp_path / "home")
