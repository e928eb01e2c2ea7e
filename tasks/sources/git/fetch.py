"""Fetch of a ref from a remote repository, within limits of time, size and memory.

A fetch is killed with all its child processes when it takes too long or transfers too much, and
when the process that started it dies.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from config.errors import PermanentError, TransientError, UsageError
from tasks.sources.git.address import GitRemote
from tasks.sources.git.process import git_command, git_environment, kill_group, summarize_stderr

ASKPASS_PREFIX = ".ask-"
"""Prefix of the temporary folder in a mirror with the program that gives git a login."""

_TICK_SECONDS = 0.05
_MAX_MEMORY_KIB = 1 << 20
"""Memory limit of each process of a fetch: a few bytes of a pack can expand to an object of any
size."""
_SUPERVISOR_SCRIPT = """exec 3<&0 </dev/null
{ read -r _ <&3; kill -9 -$$; } &
exec 3<&-
ulimit -v "$1" 2>/dev/null || :
shift
exec "$@"
"""
"""Script for sh that runs a command with a memory limit, and kills its process group when standard
input closes, as at the death of the process that started it."""
_ASKPASS_SCRIPT = """#!/bin/sh
case "$1" in
Username*) printf '%s\\n' "$CREDENTIAL_USER" ;;
*) tr -d '\\r\\n' < "$CREDENTIAL_FILE" | { read -r line; printf '%s\\n' "${line#*:}"; } ;;
esac
"""
_LOGIN_ERRORS = (
    "authentication failed",
    "could not read username",
    "could not read password",
    "returned error: 403",
)
# Messages of git quote the address: what follows needs a space, which no address has.
_REFUSED_OBJECT_ERRORS = ("fsck error", "error in object", "index-pack failed")
_REDIRECT_ERRORS = ("from redirection", "returned error: 30")
_MEMORY_ERRORS = ("out of memory", "cannot allocate", "exceeded maximum")
_MISSING_REF_ERRORS = ("unadvertised object", "not our ref", "couldn't find remote ref")
_INCOMPLETE_ERRORS = ("necessary objects", "did not receive expected object", "unresolved delta")
_MISSING_REPOSITORY_ERRORS = (
    "not found",
    "does not appear to be a git repository",
    "not exported",
    "returned error: 404",
)


class RefNotFoundError(PermanentError):
    """The remote does not have the ref to fetch, or refuses to send it."""


class IncompleteFetchError(TransientError):
    """Objects are missing after the fetch: the remote did not send them, or had reason to take them
    for present, and the mirror has lost them."""


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

    credential: user name, and the file with the password or `user:password`. stopped: polled; True
    ends the fetch. Raises TransientError for network errors, after `seconds` or when stopped,
    IncompleteFetchError, UsageError for a refused login, RefNotFoundError for a missing ref,
    PermanentError for a repository that is missing, larger than `max_bytes` or refused by git's
    checks.
    """
    arguments = [
        *("fetch", "--quiet", "--force", "--depth=1", "--no-tags", "--no-recurse-submodules"),
        *("--no-write-fetch-head", "--no-auto-gc", "--", remote.url, refspec),
    ]
    with _askpass_environment(folder, credential) as askpass, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(  # noqa: S603 - no shell; arguments from outside are checked
            _supervised_command(git_command(folder, arguments, remote.git_options)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=git_environment(remote.protocol) | askpass,
            start_new_session=True,
        )
        with process:
            try:
                _watch(process, folder, seconds, folder_size(folder) + max_bytes, stopped)
            finally:
                kill_group(process)
        stderr.seek(0)
        message = summarize_stderr(stderr.read(65_536))
    if process.returncode:
        raise _to_skillbus_error(remote, message, credential is not None)


def _watch(
    process: subprocess.Popen[bytes],
    folder: Path,
    seconds: float,
    max_bytes: int,
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
        if folder_size(folder) > max_bytes:
            raise PermanentError(
                "the repository is larger than the limit (git.megabytes): raise it, or choose "
                "another branch"
            )
        if time.monotonic() > end:
            raise TransientError(f"not fetched within {seconds:g} s (git.seconds)")
        if stopped():
            raise TransientError("stopped while fetching")


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below a folder; files that vanish meanwhile are left out."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(Path(parent, name)).st_size
            except FileNotFoundError:
                continue  # git moves packs once they are complete
    return total


def _supervised_command(words: Sequence[str]) -> list[str]:
    """Return a command line that runs `words` until its standard input is closed."""
    return ["/bin/sh", "-c", _SUPERVISOR_SCRIPT, "git", str(_MAX_MEMORY_KIB), *words]


@contextmanager
def _askpass_environment(
    folder: Path, credential: tuple[str, Path] | None
) -> Iterator[dict[str, str]]:
    """Yield environment variables that give git a login; the password stays in its file."""
    if credential is None:
        yield {}
        return
    user, file = credential
    with tempfile.TemporaryDirectory(prefix=ASKPASS_PREFIX, dir=folder) as place:
        script = Path(place, "ask")
        script.write_text(_ASKPASS_SCRIPT, encoding="ascii")
        script.chmod(0o700)
        yield {
            "GIT_ASKPASS": str(script),
            "CREDENTIAL_USER": user,
            "CREDENTIAL_FILE": str(file),
        }


def _to_skillbus_error(
    remote: GitRemote, message: str, with_login: bool
) -> PermanentError | TransientError | UsageError:
    low = message.lower()
    if any(sign in low for sign in _LOGIN_ERRORS):
        what = "the credential is refused" if with_login else "a login is required"
        return UsageError(f"{what}: give a file with a valid one (--credential-file)")
    if any(sign in low for sign in _MISSING_REF_ERRORS):
        return RefNotFoundError(
            "the branch is gone or never existed, or the repository is empty; the skills stay as "
            "they are"
        )
    if any(sign in low for sign in _MISSING_REPOSITORY_ERRORS):
        return PermanentError("no repository at this address, or it needs a login")
    if any(sign in low for sign in _INCOMPLETE_ERRORS):
        return IncompleteFetchError(message)
    if any(sign in low for sign in _MEMORY_ERRORS):
        return PermanentError(f"git refuses what the repository holds: too large ({message})")
    if any(sign in low for sign in _REFUSED_OBJECT_ERRORS):
        return PermanentError(f"git refuses what the repository holds: {message}")
    if any(sign in low for sign in _REDIRECT_ERRORS):
        return PermanentError(
            "the address redirects to another one; give that one, such as the new address of a "
            "renamed repository, or the same address with .git at its end"
        )
    if "mismatched algorithms" in low:
        return PermanentError("a repository with SHA-256 object ids; only SHA-1 is supported")
    if "shallow capabilities" in low or "not allowed" in low:
        return PermanentError(f"{remote.protocol}: {message}")
    return TransientError(message or "git failed without a message")
