"""Local commands of git: their output, their errors and their time limit."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from config.errors import PermanentError, TransientError
from tasks.sources.git.process import run_git
from tests.support.program.program import wait_for


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    run_git(tmp_path, "init", "--bare", "--quiet", "--template=")
    return tmp_path


def test_output_and_errors(repository: Path) -> None:
    assert run_git(repository, "rev-parse", "--is-bare-repository") == b"true\n"
    with pytest.raises(PermanentError, match="git rev-parse: fatal: Needed a single revision"):
        run_git(repository, "rev-parse", "--verify", "absent")


def test_children_of_a_command_that_takes_too_long_end_with_it(repository: Path) -> None:
    file = repository / "child"
    alias = f"alias.gc-like=!sleep 60 & echo $! > '{file}'; wait"
    with pytest.raises(TransientError, match="not done within 1 s"):
        run_git(repository, "-c", alias, "gc-like", seconds=1)
    child = int(file.read_text())
    wait_for(lambda: not is_running(child), 5)


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie, which its new parent may not have collected."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
