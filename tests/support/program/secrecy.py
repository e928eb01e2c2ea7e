"""No secret in any log of a whole test run: a plugin of pytest that fails the run otherwise.

Secrets of tests are known by their looks: tests make theirs with `made_up`; tokens of gateways and
passwords of servers that are started here begin in a way of their own; passwords of servers that
ran before are read from their files. Base64 hides none of those made up.

Logs are what was written while tests ran: by the tests' own process, as pytest captured it (what
it logs between two tests goes into a file, too), and by processes that they started, into files
`*.err`, `*.out` and `*.log` below the run's folder. Only what `skillbus tokens add` prints is none:
it is there to show a token. The check is made once, at the end, by the process that has started the
others.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import structlog

MARK = "not-for-any-log"

_LOGS = frozenset({".err", ".log", ".out"})
_SHOWN = "-tokens-add.out"
_TOKEN = "skb_[A-Za-z0-9_-]{43}"
_PASSWORD = "stk_[A-Za-z0-9_-]{32}"


def made_up(name: str) -> str:
    """A secret for a test; the check would find it in any log."""
    return f"{MARK}-{name}"


def hidden_in_base64(secret: str) -> list[str]:
    """How base64 shows a text, wherever it begins in what was encoded (RFC 4648, section 4)."""
    shown = []
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + secret.encode()).decode()
        # Characters at the ends depend on the characters next to the text.
        shown.append(encoded[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6])
    return shown


class Secrecy:
    """What a run has written, looked through for secrets."""

    def __init__(self, passwords: Iterable[str] = ()) -> None:
        plain = [MARK, *hidden_in_base64(MARK), *filter(None, passwords)]
        self._looks = re.compile("|".join([*map(re.escape, plain), _TOKEN, _PASSWORD]))
        self.found: list[str] = []

    def look(self, place: str, text: str) -> None:
        """Note where a text holds a secret, without the secret."""
        for number, line in enumerate(text.splitlines(), 1):
            if self._looks.search(line):
                found = f"{place}, line {number}: {self._looks.sub('…', line)[:200]}"
                if found not in self.found:  # a test's output is in its later reports, too
                    self.found.append(found)

    def look_below(self, folder: Path) -> None:
        """Look through the log files below a folder."""
        for path in _logs(folder):
            self.look(str(path), path.read_text(encoding="utf-8", errors="replace"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look through what was captured of a test."""
        for title, text in report.sections:
            self.look(f"{report.nodeid}, {title}", text)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Look through all files; the run has failed where there is a secret."""
        factory: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]  # no other way
        self.look_below(factory.getbasetemp())
        if self.found:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the secrets are."""
        if self.found:
            terminalreporter.section("secrets in logs", red=True)
        for one in self.found:
            terminalreporter.line(one)


def pytest_configure(config: pytest.Config) -> None:
    """Look through what this run writes, unless another process does."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Secrecy(_passwords_of_others()), "secrecy")


@pytest.fixture(scope="session", autouse=True)
def log_between_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have this process keep what it logs also when pytest captures nothing: threads go on."""
    path = tmp_path_factory.mktemp("logged") / "tests.log"
    with path.open("a", encoding="utf-8", buffering=1) as file:

        def keep(logger: object, method: str, line: MutableMapping[str, Any]) -> Any:
            del logger, method
            file.write(f"{dict(line)!r}\n")
            return line

        structlog.configure(processors=[keep, *structlog.get_config()["processors"]])
        yield
        structlog.reset_defaults()


def _passwords_of_others() -> Iterator[str]:
    for name, value in os.environ.items():
        if name.startswith("SKILLBUS_TEST_") and name.endswith("_PASSWORD_FILE"):
            yield Path(value).read_text(encoding="utf-8").strip()


def _logs(folder: Path) -> Iterator[Path]:
    # Unlike `Path.rglob`, it goes on where a folder is being deleted by another run.
    for base, folders, names in os.walk(folder):
        folders.sort()
        for path in sorted(Path(base, name) for name in names):
            if path.suffix in _LOGS and not path.name.endswith(_SHOWN) and path.is_file():
                yield path
