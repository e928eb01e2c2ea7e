"""Real servers for tests: started when the first test asks, gone with the test run.

`elasticsearch_url`, `neo4j_url`, `redis_url`, `rabbitmq_url` and `language_model_url` are addresses
as the settings want them: without a password. The password stands in the file of the companion
fixture, such as `redis_password_file`, which is None where the server wants none (Elasticsearch
started here).

Servers that already run are named by `SKILLBUS_TEST_ELASTICSEARCH_URL`, `SKILLBUS_TEST_NEO4J_URL`,
`SKILLBUS_TEST_REDIS_URL` and `SKILLBUS_TEST_RABBITMQ_URL`, the files of their passwords by
`SKILLBUS_TEST_REDIS_PASSWORD_FILE` and so on. Tests of faults (`servers`) are left out on them.

One server of each kind serves all tests of a process: a test uses an index prefix, a Redis
database or queues of its own, or empties what it finds. A server that cannot be had here leaves its
tests out with the reason, which the end of the run repeats; with `CI=true` they fail instead. One
that starts a `Stack` of its own does so inside `or_left_out()`, to the same end.
"""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from xdist.scheduler import LoadFileScheduling

from deploy.stack import Server, Stack, StackError, UnavailableError

EXTERNAL = ("elasticsearch", "neo4j", "redis", "rabbitmq")
"""Servers that a variable may name."""

NAMES = (*EXTERNAL, "language_model")

SLOW = {"elasticsearch", "neo4j"}
"""Servers in a Java virtual machine: until they have warmed up, the two take half a minute of
processor time."""

_NEED_SLOW = re.compile(
    r"\b(elasticsearch_url|neo4j_url|ElasticIndices|Deployments|ServerControls)\b"
)
"""Names in files of tests that need slow servers."""

_BYTES, _UNIT_BYTES = 5 << 30, 2 << 30
"""Memory of a test process with what it starts, and of one that runs unit tests."""


class RunServers:
    """The servers of a test run: external ones by variable, else those it starts."""

    def __init__(self, stack: Stack, wanted: set[str]) -> None:
        self._stack = stack
        self._wanted = {name for name in wanted if external(name) is None}
        self._problems: dict[str, StackError] = {}
        self._launched: set[str] = set()
        self._ready: set[str] = set()

    def url(self, name: str) -> str:
        """The address of a server that works, without a password."""
        address = external(name)
        if address is None:
            return self.own(name).url
        _check_reachable(name, address)
        return address

    def password_file(self, name: str) -> Path | None:
        """The file of its password."""
        if external(name) is None:
            return self.own(name).password_file
        path = os.environ.get(f"{_variable(name)}_PASSWORD_FILE")
        return Path(path) if path else None

    def own(self, name: str) -> Server:
        """A server that this run started, ready; skips or fails where there is none."""
        # Those that take long start side by side, if the selected tests will ask for them.
        together = self._wanted & SLOW if name in SLOW else set()
        for each in sorted({name, *together} - self._launched):
            self._launched.add(each)
            try:
                self._stack.launch([each])
            except StackError as error:
                self._problems[each] = error
        if name in self._problems:
            with or_left_out():
                raise self._problems[name]
        server = self._stack.server(name)
        if name not in self._ready:
            server.wait_ready()
            self._ready.add(name)
        return server

    def mend(self) -> None:
        """Have every server of this run work again, whatever a test did to it."""
        for name in self._ready:
            server = self._stack.server(name)
            server.thaw()
            if not server.running():
                server.start_again(wait=False)
        for name in self._ready:
            self._stack.server(name).wait_ready()


class ServerControls:
    """Servers that a test may kill, freeze and start again; each starts at its first use."""

    def __init__(self, run: RunServers) -> None:
        self._run = run

    def __getitem__(self, name: str) -> Server:
        """By name: `elasticsearch`, `neo4j`, `redis`, `rabbitmq` or `language_model`."""
        if external(name) is not None:
            pytest.skip(f"{name} is not this run's own: {_variable(name)}_URL names another")
        return self._run.own(name)

    @property
    def elasticsearch(self) -> Server:
        """Elasticsearch."""
        return self["elasticsearch"]

    @property
    def neo4j(self) -> Server:
        """Neo4j."""
        return self["neo4j"]

    @property
    def redis(self) -> Server:
        """Redis."""
        return self["redis"]

    @property
    def rabbitmq(self) -> Server:
        """RabbitMQ."""
        return self["rabbitmq"]

    @property
    def language_model(self) -> Server:
        """The language model."""
        return self["language_model"]


def external(name: str) -> str | None:
    """The address of a server that runs already, if a variable names one."""
    return (os.environ.get(f"{_variable(name)}_URL") or None) if name in EXTERNAL else None


@pytest.fixture(scope="session")
def run_servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunServers]:
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    wanted = {name for name in NAMES if f"{name}_url" in asked}
    with Stack(tmp_path_factory.mktemp("servers"), tethered=True) as stack:
        yield RunServers(stack, wanted)


@pytest.fixture(scope="session")
def elasticsearch_url(run_servers: RunServers) -> str:
    return run_servers.url("elasticsearch")


@pytest.fixture(scope="session")
def elasticsearch_password_file(run_servers: RunServers) -> Path | None:
    return run_servers.password_file("elasticsearch")


@pytest.fixture(scope="session")
def neo4j_url(run_servers: RunServers) -> str:
    return run_servers.url("neo4j")


@pytest.fixture(scope="session")
def neo4j_password_file(run_servers: RunServers) -> Path | None:
    return run_servers.password_file("neo4j")


@pytest.fixture(scope="session")
def redis_url(run_servers: RunServers) -> str:
    return run_servers.url("redis")


@pytest.fixture(scope="session")
def redis_password_file(run_servers: RunServers) -> Path | None:
    return run_servers.password_file("redis")


@pytest.fixture(scope="session")
def rabbitmq_url(run_servers: RunServers) -> str:
    return run_servers.url("rabbitmq")


@pytest.fixture(scope="session")
def rabbitmq_password_file(run_servers: RunServers) -> Path | None:
    return run_servers.password_file("rabbitmq")


@pytest.fixture(scope="session")
def language_model_url(run_servers: RunServers) -> str:
    """`base_url` of the small model, of which nothing but the form of its answers is right."""
    return run_servers.url("language_model")


@pytest.fixture(scope="session")
def language_model_password_file(run_servers: RunServers) -> Path | None:
    """The file with the API key."""
    return run_servers.password_file("language_model")


@pytest.fixture
def servers(run_servers: RunServers) -> Iterator[ServerControls]:
    """The run's servers to be killed and frozen; all of them work again after the test."""
    yield ServerControls(run_servers)
    run_servers.mend()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than cores, as tests wait for servers and timers a quarter of the time;
    fewer where memory is short, and one on servers that run already.

    Each process has the servers of its own that its tests ask for.
    """
    if any(external(name) for name in NAMES):
        return 1
    unit = config.rootpath / "tests" / "unit"
    paths = [config.invocation_params.dir / one for one in config.args]
    size = _UNIT_BYTES if all(one.is_relative_to(unit) for one in paths) else _BYTES
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(len(os.sched_getaffinity(0)) + 1, memory // size))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """With `--dist loadfile`, tests that need the same things run in as few processes as can be."""
    return _KindScheduling(config, log) if config.getoption("dist") == "loadfile" else None


class _KindScheduling(LoadFileScheduling):  # type: ignore[misc]  # no annotations
    """Gives the first process the tests of the console, which share a library, and the others those
    of slow servers; what is left is for any."""

    def _assign_work_unit(self, node: Any) -> None:
        kinds = ("console", "", "slow servers")
        wanted = kinds if node is self.nodes[0] else kinds[::-1]
        root = self.config.rootpath
        first = min(self.workqueue, key=lambda file: wanted.index(_find_kind(root / file)))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


@cache
def _find_kind(file: Path) -> str:
    if file.match("tests/console/*.py"):
        return "console"
    return "slow servers" if _NEED_SLOW.search(file.read_text(encoding="utf-8")) else ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each reason why tests were left out."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ").partition("\n")[0]
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section("tests left out")
    for reason, tests in reasons.most_common():
        terminalreporter.line(f"{tests} {'test' if tests == 1 else 'tests'}: {reason}")


@contextmanager
def or_left_out() -> Iterator[None]:
    """Where a server cannot be had on this machine, leave the test out; with `CI=true`, fail."""
    try:
        yield
    except UnavailableError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def _check_reachable(name: str, address: str) -> None:
    parts = urlsplit(address.split(",")[0])
    default = {"elasticsearch": 9200, "neo4j": 7687, "redis": 6379, "rabbitmq": 5672}[name]
    try:
        with socket.create_connection((parts.hostname or "", parts.port or default), 60):
            pass
    except OSError as error:
        named = f"{_variable(name)}_URL={address}"
        pytest.fail(f"{named} cannot be reached: {error}", pytrace=False)


def _variable(name: str) -> str:
    return f"SKILLBUS_TEST_{name.upper()}"
