"""Bare mirrors: one folder a source that holds what was fetched.

Every machine has mirrors of its own: one that has not what it is asked for fetches it. Processes
of a machine share them, and change a mirror one at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from config.errors import MisconfiguredError, PermanentError, TransientError, UsageError
from config.secrets import read_secret
from config.settings import Settings
from graph.protocol import Source
from tasks.sources.git.address import check_branch, check_subfolder, check_url, resolve_remote
from tasks.sources.git.process import RefNotFoundError, fetch_ref, folder_size, run_git

_REF = "refs/skillbus/head"
_MOST_PACKS = 16
_PLAIN_USER = "x-access-token"
"""The name that goes with a bare token: GitHub names it so, other hosts take any."""
_TIDY_SECONDS = 120.0
_MEGABYTE = 1_000_000
_LONGEST_NAME = 200
_LOCK = ".lock"
_TURN_SECONDS = 0.05
_ORPHAN_SECONDS = 3600.0
"""A new source has a mirror before the catalog knows it."""

IsStopped = Callable[[], bool]


def check_git_source(source: Source, settings: Settings) -> None:
    """Raise UsageError unless a git source can be fetched as it is described; no network."""
    check_url(source.root, settings.git)
    check_branch(source.branch)
    check_subfolder(source.path)
    find_credential(source, settings)


def find_credential(source: Source, settings: Settings) -> tuple[str, Path] | None:
    """User name and file of a source's credential, None where it has none.

    The file holds a token, or `user:password`, in one line. Raises UsageError when it lies
    outside the folder of credentials, SetupError when it cannot be read.
    """
    if not source.credential_file:
        return None
    folder = credentials_folder(settings)
    file = (folder / source.credential_file).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise UsageError(
            f"a credential file has to lie in {folder}; move it there, or name its folder with "
            "git.credentials"
        )
    secret = read_secret(file, "credential file") or ""
    if "\n" in secret or "\r" in secret:
        raise MisconfiguredError(f"credential file: {file} has several lines; one is wanted")
    if source.root.startswith("http:") and not settings.git.allow_private:
        raise UsageError("a credential is not sent over http; give an https address")
    user, found, _ = secret.partition(":")
    return (user if found else _PLAIN_USER), file


def credentials_folder(settings: Settings) -> Path:
    """Where credential files lie; the catalog has their names in it."""
    return (settings.git.credentials or settings.home / "credentials").expanduser().absolute()


class Mirror:
    """The bare repository of one source on this machine."""

    def __init__(self, source: Source, settings: Settings) -> None:
        self.folder = mirror_folder(source.source_id, settings)
        self._source = source
        self._settings = settings

    def fetch(self, stopped: IsStopped = lambda: False) -> str:
        """Fetch the newest commit of the source's branch; returns its id.

        Errors as `tasks.sources.git.process.transfer` raises them; what was there before stays.
        """
        with self._locked(stopped):
            self._transfer(self._refspec, stopped)
            commit = run_git(self.folder, "rev-parse", "--verify", f"{_REF}^{{commit}}")
            return commit.decode().strip()

    def ensure_commit(self, commit: str) -> None:
        """Fetch a commit unless it is there: the mirror was lost, or another machine fetched it.

        Raises TransientError when the remote does not give it, as after a push by force: the next
        fetch of the source leads on to another one. Other errors as `fetch`.
        """
        if self.has_commit(commit):
            return
        with self._locked():
            if self.has_commit(commit):
                return
            try:
                self._transfer(f"+{commit}:refs/skillbus/read")
            except RefNotFoundError:
                # A server may give what branches point to and nothing else.
                self._transfer(self._refspec)
            if not self.has_commit(commit):
                raise TransientError(f"commit {commit[:12]} is not given any more")

    def has_commit(self, commit: str) -> bool:
        """Whether the mirror holds a commit, given by its id or a ref."""
        if not (self.folder / "HEAD").is_file():
            return False
        try:
            run_git(self.folder, "cat-file", "-e", f"{commit}^{{tree}}")
        except PermanentError:
            return False
        return True

    def drop(self) -> None:
        """Delete the mirror, unless somebody fetches into it right now."""
        with suppress(TransientError, MisconfiguredError), self._locked(lambda: True):
            shutil.rmtree(self.folder, ignore_errors=True)
            self._lock_file.unlink(missing_ok=True)

    @property
    def _refspec(self) -> str:
        branch = self._source.branch
        wanted = f"refs/heads/{branch}" if branch else "HEAD"
        return f"+{wanted}:{_REF}"

    @property
    def _lock_file(self) -> Path:
        return self.folder.with_name(self.folder.name + _LOCK)

    @contextmanager
    def _locked(self, stopped: IsStopped = lambda: False) -> Iterator[None]:
        """Nobody else on this machine changes the mirror inside the block."""
        end = time.monotonic() + self._settings.git.seconds
        while True:
            with self._opened_lock() as lock:
                if _try_flock(lock.fileno()):
                    yield
                    return
            if stopped() or time.monotonic() > end:
                raise TransientError("another process is at the mirror of this source")
            time.sleep(_TURN_SECONDS)

    def _opened_lock(self) -> BinaryIO:
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return self._lock_file.open("wb")
        except OSError as error:
            raise MisconfiguredError(
                f"{self.folder.parent}: {error.strerror}; repositories are fetched into it "
                "(git.mirrors)"
            ) from None

    def _transfer(self, refspec: str, stopped: IsStopped = lambda: False) -> None:
        check_git_source(self._source, self._settings)
        limits = self._settings.git
        remote = resolve_remote(self._source.root, limits)
        self._prepare()
        try:
            fetch_ref(
                self.folder,
                remote,
                refspec,
                credential=find_credential(self._source, self._settings),
                seconds=limits.seconds,
                max_bytes=limits.megabytes * _MEGABYTE,
                stopped=stopped,
            )
        finally:
            self._sweep()

    def _prepare(self) -> None:
        """Make the bare repository, without any template, or tidy one that has grown."""
        self._sweep()
        if not self._is_intact():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(mode=0o700)
            run_git(self.folder, "init", "--bare", "--quiet", "--template=")
        packs = list((self.folder / "objects" / "pack").glob("*.pack"))
        too_large = folder_size(self.folder) > self._settings.git.megabytes * _MEGABYTE
        if len(packs) >= _MOST_PACKS or too_large:
            # Who reads an older commit right now may go on for a while.
            run_git(self.folder, "gc", "--quiet", "--prune=1.hour.ago", seconds=_TIDY_SECONDS)

    def _is_intact(self) -> bool:
        """Whether the repository is there, and what it was left with can be read."""
        refs = [ref for ref in ("head", "read") if (self.folder / "refs/skillbus" / ref).exists()]
        return (self.folder / "HEAD").is_file() and all(
            self.has_commit(f"refs/skillbus/{ref}") for ref in refs
        )

    def _sweep(self) -> None:
        """Remove what an ended fetch, or one that was killed, left half done."""
        objects = self.folder / "objects"
        for left in (*objects.glob("pack/tmp_*"), *objects.glob("tmp_objdir-*")):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
        for lock in (*self.folder.glob("*.lock"), *self.folder.glob("refs/**/*.lock")):
            lock.unlink(missing_ok=True)


def _try_flock(descriptor: int) -> bool:
    """Whether a lock is ours now, and its file still the one that others look at."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(descriptor).st_nlink > 0


def mirror_folder(source_id: str, settings: Settings) -> Path:
    """The folder of a source's mirror; an id may hold what a folder's name may not."""
    name = quote(source_id, safe="")
    if len(name) > _LONGEST_NAME:
        name = hashlib.sha256(source_id.encode()).hexdigest()
    return _mirrors(settings) / f"{name}.git"


def _mirrors(settings: Settings) -> Path:
    return (settings.git.mirrors or settings.home / "git").expanduser().absolute()


def delete_mirror(source_id: str, settings: Settings) -> None:
    """Delete the mirror of a source that was removed; one in use goes with the strays."""
    Mirror(Source(source_id, "git", ""), settings).drop()


def delete_orphaned_mirrors(source_ids: Collection[str], settings: Settings) -> None:
    """Delete mirrors on this machine whose sources are gone; another one may have removed them."""
    known = {mirror_folder(source_id, settings) for source_id in source_ids}
    settled = time.time() - _ORPHAN_SECONDS
    for folder in _mirrors(settings).glob("*.git"):
        if folder not in known and folder.stat().st_mtime < settled:
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_name(folder.name + _LOCK).unlink(missing_ok=True)
