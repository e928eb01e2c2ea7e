"""The check for secrets in logs finds each kind, wherever it stands, and fails the run."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program.program import ROOT
from tests.support.program.secrecy import MARK, Secrecy, hidden_in_base64, made_up

LEAKS = """
import logging, subprocess, sys
import structlog
from tests.support.program.secrecy import made_up

def test_printed():
    print("so:", made_up("printed"))

def test_logged(tmp_path):
    logging.getLogger("x").warning("refused: %s", made_up("logged"))

def test_by_a_child(tmp_path):
    code = "import sys; print(sys.argv[1], file=sys.stderr)"
    with (tmp_path / "child.err").open("w") as log:
        subprocess.run([sys.executable, "-c", code, made_up("child")], stderr=log, check=True)

def test_by_a_child_that_has_this_output():
    code = "import sys; print(sys.argv[1], file=sys.stderr)"
    subprocess.run([sys.executable, "-c", code, made_up("inherited")], check=True)

def test_a_token(tmp_path):
    (tmp_path / "command-1-serve.out").write_text("skb_" + "x" * 43)

def test_between_tests(request):
    request.addfinalizer(lambda: structlog.get_logger().info("late", key=made_up("late")))

def test_a_servers_password(tmp_path):
    (tmp_path / "redis.log").write_text("AUTH stk_" + "x" * 32)
"""
KEPT = """
from tests.support.program.secrecy import made_up

def test_shown_and_kept(tmp_path):
    print("a token begins with skb_, and is not logged")
    (tmp_path / "command-1-tokens-add.out").write_text("skb_" + "x" * 43)
    (tmp_path / "secret").write_text(made_up("kept"))
"""


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder outside of this run's, whose logs are looked through, too."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A test run of its own, with the check."""
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder)]
    plugins = ["-p", "xdist", "-p", "tests.support.program.secrecy", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *plugins, f"--basetemp={folder / 'base'}", *options, "test_it.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_run_fails_for_each_secret_in_a_log(elsewhere: Path, options: tuple[str, ...]) -> None:
    ended = run(elsewhere, LEAKS, *options)
    assert ended.returncode == 1, ended.stdout
    assert "7 passed" in ended.stdout
    reported = ended.stdout.partition("secrets in logs")[2]
    for place in (
        *("test_printed", "test_logged", "child.err", "this_output", "serve.out", "redis.log"),
        "tests.log",
    ):
        assert place in reported
    assert MARK not in reported
    assert "skb_x" not in reported


def test_a_run_without_a_secret_in_a_log_passes(elsewhere: Path) -> None:
    ended = run(elsewhere, KEPT)
    assert (ended.returncode, "1 passed" in ended.stdout) == (0, True), ended.stdout


@pytest.mark.parametrize("before", ["", "a", "ab", "user:"])
@pytest.mark.parametrize("after", ["", "x", "\n"])
def test_base64_hides_nothing(before: str, after: str) -> None:
    text = base64.b64encode(f"{before}{made_up('y')}{after}".encode()).decode()
    assert sum(shown in text for shown in hidden_in_base64(MARK)) == 1
    check = Secrecy()
    check.look("here", f"Authorization: Basic {text}")
    assert len(check.found) == 1


def test_passwords_of_servers_that_ran_before_are_known() -> None:
    check = Secrecy(["p.w", ""])
    check.look("here", "one\nAUTH p.w\npxw\n")
    assert check.found == ["here, line 2: AUTH …"]
