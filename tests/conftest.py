"""Fixtures of all tests that run the program."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# The processes of a run use every core already; threads of BLAS would wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest
import structlog

from tests.support.program import loopback_only
from tests.support.program.program import ForkServer, Skillbus

TESTS = Path(__file__).parent
WAITING = [TESTS / "integration" / name for name in ("distributed", "faults", "servers")]

pytest_plugins = [
    "tests.support.servers.servers",
    "tests.support.servers.elastic",
    "tests.support.program.files_in_memory",
    "tests.support.program.secrecy",
]

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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the files whose tests wait for timeouts and restarts among those that compute, so that
    processes of a run do not all wait at once; short unit tests stay last, to end together."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    kinds = {path: _kind(path) for path in files}
    many, seen = Counter(kinds.values()), Counter[str]()
    places: dict[Path, float] = {}
    for path, kind in kinds.items():
        places[path] = 1.0 if kind == "unit" else (seen[kind] + 0.5) / many[kind]
        seen[kind] += 1
    items[:] = [item for path in sorted(files, key=places.__getitem__) for item in files[path]]


def _kind(path: Path) -> str:
    if path.is_relative_to(TESTS / "unit"):
        return "unit"
    return "waits" if any(path.is_relative_to(folder) for folder in WAITING) else "computes"


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
