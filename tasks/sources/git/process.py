"""The git program: started with nothing of the machine's own configuration.

No hooks, no submodules, no filters, no helpers, no prompts, no redirects; a protocol that was not
checked is refused by git itself. A fetch is watched: it ends, with all it started, once it takes
too long or brings too much, and when the process that started it dies.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from config.errors import MisconfiguredError, PermanentError, TransientError, UsageError
from tasks.sources.git.address import GitRemote

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
"""The first one that pins names (http.curloptResolve)."""
_TICK_SECONDS = 0.05
_MOST_MEMORY_KIB = 1 << 20
"""Of each process of a fetch: a few bytes of a pack can stand for an object of any size."""
_SUPERVISOR_SCRIPT = """exec 3<&0 </dev/null
{ read -r _ <&3; kill -9 -$$; } &
exec 3<&-
ulimit -v "$1" 2>/dev/null || :
shift
exec "$@"
"""
"""For sh: runs a command within so much memory, and ends all of it once nobody holds the other end
of its input."""
_ASKPASS_SCRIPT = """#!/bin/sh
case "$1" in
Username*) printf '%s\\n' "$CREDENTIAL_USER" ;;
*) read -r line < "$CREDENTIAL_FILE"; printf '%s\\n' "${line#*:}" ;;
esac
"""
_WRONG_LOGIN = (
    "authentication failed",
    "could not read username",
    "could not read password",
    "returned error: 403",
)
_TOO_LARGE = ("out of memory", "cannot allocate", "exceeded maximum")
_NOT_GIVEN = ("unadvertised object", "not our ref", "couldn't find remote ref")
_GONE = (
    "not found",
    "does not appear to be a git repository",
    "not exported",
    "returned error: 404",
)


class RefNotFoundError(PermanentError):
    """The remote does not have, or does not give, what is to be fetched."""


def environment(protocol: str = "") -> dict[str, str]:
    """All that git and its children see of the environment; `protocol` is the one allowed."""
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


def command(folder: Path, arguments: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """The command line of a git that works in the bare repository `folder`."""
    chosen = [part for option in (*_OPTIONS, *options) for part in ("-c", option)]
    return [program(), "--no-pager", f"--git-dir={folder}", *chosen, *arguments]


def supervised_command(words: Sequence[str]) -> list[str]:
    """A command line that runs another, until its standard input is closed."""
    return ["/bin/sh", "-c", _SUPERVISOR_SCRIPT, "git", str(_MOST_MEMORY_KIB), *words]


def program() -> str:
    """The path of git; raises SetupError when it is not there or too old to be safe."""
    found = shutil.which("git")
    if found is None:
        raise MisconfiguredError(
            "no git on this machine, which git sources need on every machine whose workers take "
            "fetch or ingest: install git"
        )
    if found not in _versions:
        told = subprocess.run(  # noqa: S603 - a fixed argument, no shell
            [found, "--version"], capture_output=True, text=True, env=environment(), check=False
        ).stdout.strip()
        numbers = [int(number) for number in re.findall(r"\d+", told)[:2]]
        if tuple(numbers) < _MIN_VERSION:
            least = ".".join(map(str, _MIN_VERSION))
            raise MisconfiguredError(
                f"{told or found}: git {least} or later is needed for git sources"
            )
        _versions[found] = told
    return found


def version() -> str:
    """What git says it is; raises SetupError as `program` does."""
    return _versions[program()]


_versions: dict[str, str] = {}
"""What programs said they were."""


def run_git(folder: Path, *arguments: str, seconds: float = 60.0) -> bytes:
    """What a local command of git prints; no network. Raises PermanentError with what it said."""
    try:
        done = subprocess.run(  # noqa: S603 - no shell; what comes from outside is checked
            command(folder, arguments),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environment(),
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TransientError(f"git {arguments[0]}: not done within {seconds:g} s") from None
    if done.returncode:
        raise PermanentError(f"git {arguments[0]}: {_summarize_stderr(done.stderr)}")
    return done.stdout


def fetch_ref(
    folder: Path,
    remote: GitRemote,
    refspec: str,
    *,
    credential: tuple[str, Path] | None,
    seconds: float,
    max_bytes: int,
    stopped: Callable[[], bool],
) -> None:
    """Fetch one ref, without history, into the bare repository `folder`.

    credential: user name and the file with the password, perhaps after `user:`. Raises
    TransientError when the network or the time fails or `stopped` says so, UsageError for a wrong
    login, RefGoneError for a ref that is not there, PermanentError for a repository that is gone,
    too large or refused by git's own checks.
    """
    arguments = [
        *("fetch", "--quiet", "--force", "--depth=1", "--no-tags", "--no-recurse-submodules"),
        *("--no-write-fetch-head", "--no-auto-gc", "--", remote.url, refspec),
    ]
    with _askpass_environment(folder, credential) as asking, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(  # noqa: S603 - arguments are passed on as they are
            supervised_command(command(folder, arguments, remote.git_options)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=environment(remote.protocol) | asking,
            start_new_session=True,
        )
        with process:
            try:
                _watch(process, folder, seconds, folder_size(folder) + max_bytes, stopped)
            finally:
                _end(process)
        said.seek(0)
        told = said.read(65_536)
    if process.returncode:
        raise _to_skillbus_error(remote, _summarize_stderr(told), credential is not None)


def _watch(
    process: subprocess.Popen[bytes],
    folder: Path,
    seconds: float,
    most: int,
    stopped: Callable[[], bool],
) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            process.wait(_TICK_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        else:
            return
        if folder_size(folder) > most:
            raise PermanentError(
                "the repository is larger than the limit (git.megabytes): raise it, or choose "
                "another branch"
            )
        if time.monotonic() > end:
            raise TransientError(f"not fetched within {seconds:g} s (git.seconds)")
        if stopped():
            raise TransientError("stopped while fetching")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all it started."""
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder, as far as they are there at the moment."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(Path(parent, name)).st_size
            except FileNotFoundError:
                continue  # git moves what it has received
    return total


@contextmanager
def _askpass_environment(
    folder: Path, credential: tuple[str, Path] | None
) -> Iterator[dict[str, str]]:
    """Environment through which git learns a login: the password stays in its file."""
    if credential is None:
        yield {}
        return
    user, file = credential
    with tempfile.TemporaryDirectory(prefix=".ask-", dir=folder.parent) as place:
        script = Path(place, "ask")
        script.write_text(_ASKPASS_SCRIPT, encoding="ascii")
        script.chmod(0o700)
        yield {
            "GIT_ASKPASS": str(script),
            "CREDENTIAL_USER": user,
            "CREDENTIAL_FILE": str(file),
        }


def _summarize_stderr(stderr: bytes) -> str:
    """What git said, in one line that can be shown."""
    text = stderr.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))] or lines
    joined = "; ".join(chosen[:4])
    return "".join(char if char.isprintable() else "?" for char in joined)[:500]


def _to_skillbus_error(
    remote: GitRemote, told: str, with_login: bool
) -> PermanentError | TransientError | UsageError:
    low = told.lower()
    if any(sign in low for sign in _WRONG_LOGIN):
        what = "the credential is refused" if with_login else "a login is asked for"
        return UsageError(f"{what}: give a file with one that may read it (--credential-file)")
    if any(sign in low for sign in _NOT_GIVEN):
        return RefNotFoundError(
            "the branch is gone, or was never there; the skills stay as they are"
        )
    if any(sign in low for sign in _GONE):
        return PermanentError("there is no repository (any more), or it wants a login")
    if any(sign in low for sign in _TOO_LARGE):
        return PermanentError(f"git refuses what the repository holds: too large ({told})")
    if "fsck" in low or "error in object" in low or "index-pack failed" in low:
        return PermanentError(f"git refuses what the repository holds: {told}")
    if "redirect" in low or "returned error: 30" in low:
        return PermanentError("the address redirects elsewhere; give the address it leads to")
    if "shallow capabilities" in low or "not allowed" in low:
        return PermanentError(f"{remote.protocol}: {told}")
    return TransientError(told or "git ended without a word")
