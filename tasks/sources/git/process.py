"""Local commands of git, without any configuration, hooks or helpers of the machine.

No hooks, submodules, filters, credential helpers, prompts or redirects; git itself refuses any
unchecked protocol. Fetches, which use the network, are in `fetch`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from config.errors import MisconfiguredError, PermanentError, TransientError

_OPTIONS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.bigFileThreshold=16m",
    "core.packedGitLimit=256m",
    "core.packedGitWindowSize=32m",
    "credential.helper=",
    "fetch.fsckObjects=true",
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "fetch.recurseSubmodules=false",
    "fetch.unpackLimit=1",
    "gc.auto=0",
    "gc.packRefs=false",
    "http.followRedirects=false",
    "http.proxy=",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
    "maintenance.auto=false",
    "pack.threads=2",
    "protocol.version=2",
    "submodule.recurse=false",
    "transfer.bundleURI=false",
)
_MIN_VERSION = (2, 37)
"""Minimum version of git, the first that can pin a host name to addresses (http.curloptResolve)."""


def git_environment(protocol: str = "") -> dict[str, str]:
    """Return the whole environment of git. protocol: the only allowed protocol, "" for none."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": protocol or "none",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }


def git_command(folder: Path, arguments: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """Return a command line of git for the bare repository `folder`. options: as `name=value`."""
    chosen = [part for option in (*_OPTIONS, *options) for part in ("-c", option)]
    return [find_git(), "--no-pager", f"--git-dir={folder}", *chosen, *arguments]


def find_git() -> str:
    """Return the path of git; raises MisconfiguredError if it is missing or too old to be safe."""
    found = shutil.which("git")
    if found is None:
        raise MisconfiguredError(
            "git is not installed; git sources need it where workers take fetch or ingest"
        )
    if found not in _versions:
        version = subprocess.run(  # noqa: S603 - a fixed argument, no shell
            [found, "--version"], capture_output=True, text=True, env=git_environment(), check=False
        ).stdout.strip()
        numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
        if tuple(numbers) < _MIN_VERSION:
            required = ".".join(map(str, _MIN_VERSION))
            raise MisconfiguredError(
                f"{version or found}: git {required} or later is needed for git sources"
            )
        _versions[found] = version
    return found


def get_git_version() -> str:
    """Return the output of `git --version`; raises MisconfiguredError as `find_git` does."""
    return _versions[find_git()]


_versions: dict[str, str] = {}
"""Path of a git program -> its version, read once."""


def run_git(folder: Path, *arguments: str, seconds: float = 60.0) -> bytes:
    """Return the output of a local command of git.

    Raises PermanentError with its error message, TransientError after `seconds`.
    """
    with subprocess.Popen(  # noqa: S603 - no shell; arguments from outside are checked
        git_command(folder, arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=git_environment(),
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TransientError(f"git {arguments[0]}: not done within {seconds:g} s") from None
        finally:
            if process.returncode is None:  # else its id may be that of another process
                kill_group(process)
    if process.returncode:
        raise PermanentError(f"git {arguments[0]}: {summarize_stderr(errors)}")
    return output


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was started in a session of its own, and all its children."""
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def start_git(folder: Path, arguments: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
    """Start a local command of git with a pipe for its output; the caller must end it."""
    return subprocess.Popen(  # noqa: S603 - no shell, and arguments from outside are checked
        git_command(folder, arguments),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=git_environment(),
        start_new_session=True,
    )


@contextmanager
def started_git(folder: Path, arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start git as `start_git` does, without input, and kill it at the end of the block."""
    process = start_git(folder, arguments, subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        output_of(process).close()
        process.wait()


def output_of(process: subprocess.Popen[bytes]) -> BufferedReader:
    """Return the output of a process from `start_git`."""
    if not isinstance(process.stdout, BufferedReader):
        raise AssertionError("started with a pipe")
    return process.stdout


def summarize_stderr(stderr: bytes) -> str:
    """Return the error messages of git in one line of printable characters."""
    text = stderr.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))] or lines
    joined = "; ".join(chosen[:4])
    return "".join(char if char.isprintable() else "?" for char in joined)[:500]
