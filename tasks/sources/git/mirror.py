"""Bare mirrors: one repository per git source and machine, with the commits fetched so far.

A mirror without the wanted commit fetches it. The processes of a machine share its mirrors, and
change a mirror one at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import structlog

from config.errors import MisconfiguredError, PermanentError, TransientError, UsageError
from config.secrets import read_secret
from config.settings import Settings
from graph.records import Source
from tasks.sources.git.address import check_branch, check_subfolder, check_url, resolve_remote
from tasks.sources.git.fetch import (
    ASKPASS_PREFIX,
    IncompleteFetchError,
    RefNotFoundError,
    fetch_ref,
    folder_size,
)
from tasks.sources.git.process import run_git

log = structlog.get_logger()

_REF, _READ_REF = "refs/skillbus/head", "refs/skillbus/read"
_MAX_PACKS = 16
_DEFAULT_USER = "x-access-token"
"""User name for a token without one: GitHub requires this name, other hosts accept any."""
_GC_SECONDS = 120.0
_MEGABYTE = 1_000_000
_MAX_NAME_LENGTH = 200
_LOCK_SUFFIX = ".lock"
_POLL_SECONDS = 0.05
_ORPHAN_SECONDS = 3600.0
"""Minimum age in seconds of an orphaned mirror: a younger one may be of a source that is not in the
catalog yet."""

IsStopped = Callable[[], bool]


def check_git_source(source: Source, settings: Settings) -> None:
    """Raise UsageError unless a git source has a valid address, branch, path and credential.

    Uses no network.
    """
    check_url(source.root, settings.git)
    check_branch(source.branch)
    check_subfolder(source.path)
    find_credential(source, settings)


def find_credential(source: Source, settings: Settings) -> tuple[str, Path] | None:
    """Return user name and file of a source's credential, None without one.

    The file holds a token, or `user:password`, in one line. Raises UsageError if the file lies
    outside `credentials_folder`, MisconfiguredError if it cannot be read.
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
        raise MisconfiguredError(f"credential file: {file} has several lines; write one")
    if check_url(source.root, settings.git) == "http" and not settings.git.allow_private:
        raise UsageError("a credential is not sent over http; give an https address")
    user, found, _ = secret.partition(":")
    return (user if found else _DEFAULT_USER), file


def credentials_folder(settings: Settings) -> Path:
    """Return the folder of credential files; the catalog holds paths relative to it."""
    return (settings.git.credentials or settings.home / "credentials").expanduser().absolute()


class Mirror:
    """The bare repository of one source on this machine."""

    def __init__(self, source: Source, settings: Settings) -> None:
        self.folder = mirror_folder(source.source_id, settings)
        self._source = source
        self._settings = settings

    def fetch(self, stopped: IsStopped = lambda: False) -> str:
        """Fetch the newest commit of the source's branch; returns its id.

        Raises as `fetch_ref` does; earlier commits stay.
        """
        with self._locked(stopped):
            self._transfer(self._refspec, stopped)
            commit = run_git(self.folder, "rev-parse", "--verify", f"{_REF}^{{commit}}")
            return commit.decode().strip()

    def ensure_commit(self, commit: str) -> None:
        """Fetch a commit unless the mirror holds it.

        Raises TransientError if the remote refuses it, as after a forced push: the next fetch of
        the source brings another commit. Otherwise raises as `fetch_ref` does.
        """
        if self.has_commit(commit):
            return
        with self._locked():
            if self.has_commit(commit):
                return
            try:
                self._transfer(f"+{commit}:{_READ_REF}")
            except RefNotFoundError:
                # Some servers send only commits that branches point to.
                self._transfer(self._refspec)
            if not self.has_commit(commit):
                raise TransientError(f"commit {commit[:12]} cannot be fetched any more")

    def has_commit(self, commit: str) -> bool:
        """Return whether the mirror holds a commit. commit: its id or a ref."""
        if not (self.folder / "HEAD").is_file():
            return False
        try:
            run_git(self.folder, "cat-file", "-e", f"{commit}^{{tree}}")
        except PermanentError:
            return False
        return True

    def is_complete(self, commit: str) -> bool:
        """Return whether the mirror holds every object of a commit; takes seconds for a large one.

        commit: its id or a ref.
        """
        try:
            run_git(self.folder, "rev-list", "--objects", "--quiet", commit)
        except PermanentError:
            return False
        return True

    def drop(self) -> None:
        """Delete the mirror, unless another process is fetching into it."""
        with suppress(TransientError), self._locked(lambda: True):
            shutil.rmtree(self.folder, ignore_errors=True)
            self._lock_file.unlink(missing_ok=True)

    @property
    def _refspec(self) -> str:
        branch = self._source.branch
        wanted = f"refs/heads/{branch}" if branch else "HEAD"
        return f"+{wanted}:{_REF}"

    @property
    def _lock_file(self) -> Path:
        return self.folder.with_name(self.folder.name + _LOCK_SUFFIX)

    @contextmanager
    def _locked(self, stopped: IsStopped = lambda: False) -> Iterator[None]:
        """Lock the mirror against other processes of this machine."""
        end = time.monotonic() + self._settings.git.seconds
        while True:
            with self._opened_lock() as lock:
                if _try_flock(lock.fileno()):
                    yield
                    return
            if stopped() or time.monotonic() > end:
                raise TransientError("another process uses the mirror of this source")
            time.sleep(_POLL_SECONDS)

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
        refs, packs = self._read_refs(), self._list_packs()
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
        except BaseException as error:
            self._restore(refs, packs)
            if isinstance(error, IncompleteFetchError) and not all(map(self.is_complete, refs)):
                self._create()  # the next fetch brings everything
            raise
        finally:
            self._remove_leftovers()

    def _read_refs(self) -> dict[str, str]:
        """Return ref -> commit id."""
        lines = run_git(self.folder, "for-each-ref", "--format=%(refname) %(objectname)")
        return dict(line.split() for line in lines.decode().splitlines())

    def _list_packs(self) -> set[Path]:
        return set((self.folder / "objects" / "pack").glob("pack-*"))

    def _restore(self, refs: dict[str, str], packs: set[Path]) -> None:
        """Undo a fetch that may have been killed after its pack was complete."""
        for ref, _ in self._read_refs().items() - refs.items():
            run_git(self.folder, "update-ref", *([ref, refs[ref]] if ref in refs else ["-d", ref]))
        for pack in self._list_packs() - packs:
            pack.unlink()

    def _prepare(self) -> None:
        """Create the bare repository, without any template; in a large existing one, collect
        garbage."""
        self._remove_leftovers()
        if not self._is_intact():
            self._create()
        packs = list((self.folder / "objects" / "pack").glob("*.pack"))
        too_large = folder_size(self.folder) > self._settings.git.megabytes * _MEGABYTE
        if len(packs) >= _MAX_PACKS or too_large:
            try:
                # Another process may still be reading an older commit.
                run_git(self.folder, "gc", "--quiet", "--prune=1.hour.ago", seconds=_GC_SECONDS)
            except TransientError as error:  # took too long; the fetch does not depend on it
                log.warning("mirror not cleaned up", mirror=str(self.folder), reason=str(error))
            except PermanentError as error:
                log.warning("mirror created again", mirror=str(self.folder), reason=str(error))
                self._create()

    def _create(self) -> None:
        """Create the bare repository, in place of a damaged one."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        run_git(self.folder, "init", "--bare", "--quiet", "--template=")

    def _is_intact(self) -> bool:
        """Return whether the repository exists and its refs can be read."""
        try:
            run_git(self.folder, "rev-parse", "--git-dir")
        except PermanentError:  # as after a `git init` that was killed
            return False
        refs = (_REF, _READ_REF)
        return all(self.has_commit(ref) for ref in refs if (self.folder / ref).exists())

    def _remove_leftovers(self) -> None:
        """Remove temporary files and locks of fetches that were killed."""
        patterns = ("objects/pack/tmp_*", "objects/tmp_objdir-*", f"{ASKPASS_PREFIX}*")
        for left in chain.from_iterable(map(self.folder.glob, patterns)):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
        for lock in (*self.folder.glob("*.lock"), *self.folder.glob("refs/**/*.lock")):
            lock.unlink(missing_ok=True)


def _try_flock(descriptor: int) -> bool:
    """Take the lock without waiting; return False if it is held or its file was deleted
    meanwhile."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(descriptor).st_nlink > 0


def mirror_folder(source_id: str, settings: Settings) -> Path:
    """Return the folder of a source's mirror, with the id escaped to a valid name."""
    name = quote(source_id, safe="")
    if len(name) > _MAX_NAME_LENGTH:
        name = hashlib.sha256(source_id.encode()).hexdigest()
    return _mirrors(settings) / f"{name}.git"


def _mirrors(settings: Settings) -> Path:
    return (settings.git.mirrors or settings.home / "git").expanduser().absolute()


def delete_mirror(source_id: str, settings: Settings) -> None:
    """Delete the mirror of a removed source; one that is in use stays for
    `delete_orphaned_mirrors`."""
    Mirror(Source(source_id, "git", ""), settings).drop()


def delete_orphaned_mirrors(source_ids: Collection[str], settings: Settings) -> None:
    """Delete this machine's mirrors of removed sources. source_ids: ids of the existing sources."""
    known = {mirror_folder(source_id, settings) for source_id in source_ids}
    settled = time.time() - _ORPHAN_SECONDS
    for folder in _mirrors(settings).glob("*.git"):
        with suppress(FileNotFoundError):  # another process deletes it
            if folder not in known and folder.stat().st_mtime < settled:
                shutil.rmtree(folder, ignore_errors=True)
                folder.with_name(folder.name + _LOCK_SUFFIX).unlink()
