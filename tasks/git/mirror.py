"""Bare mirrors: one folder a source, below `git` in the home, that holds what was fetched."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from config.errors import PermanentError, SetupError, UsageError
from config.secrets import read_secret
from config.settings import Settings
from graph.protocol import Source
from tasks.git.address import check_branch, check_folder, check_url, resolve
from tasks.git.program import run, size_of, transfer

_REF = "refs/skillbus/head"
_MOST_PACKS = 16
_PLAIN_USER = "x-access-token"
"""The name that goes with a bare token: GitHub names it so, other hosts take any."""
_TIDY_SECONDS = 120.0
_MEGABYTE = 1_000_000
_LONGEST_NAME = 200


def check_source(source: Source, settings: Settings) -> None:
    """Raise UsageError unless a git source can be fetched as it is described; no network."""
    check_url(source.root, settings.git)
    check_branch(source.branch)
    check_folder(source.path)
    credential_of(source, settings)


def credential_of(source: Source, settings: Settings) -> tuple[str, Path] | None:
    """User name and file of a source's credential, None where it has none.

    The file holds a token, or `user:password`, in one line. Raises UsageError when it lies
    outside the folder of credentials, SetupError when it cannot be read.
    """
    if not source.credential_file:
        return None
    folder = (settings.git.credentials or settings.home / "credentials").expanduser().absolute()
    file = (folder / source.credential_file).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise UsageError(
            f"a credential file has to lie in {folder}; move it there, or name its folder with "
            "git.credentials"
        )
    secret = read_secret(file, "credential file") or ""
    if "\n" in secret or "\r" in secret:
        raise SetupError(f"credential file: {file} has several lines; one is wanted")
    if source.root.startswith("http:") and not settings.git.allow_private:
        raise UsageError("a credential is not sent over http; give an https address")
    user, found, _ = secret.partition(":")
    return (user if found else _PLAIN_USER), file


class Mirror:
    """The bare repository of one source; one process fetches into it at a time."""

    def __init__(self, source: Source, settings: Settings) -> None:
        self.folder = folder_of(source.source_id, settings)
        self._source = source
        self._settings = settings

    def fetch(self, stopped: Callable[[], bool] = lambda: False) -> str:
        """Fetch the newest commit of the source's branch; returns its id.

        Errors as `tasks.git.program.transfer` raises them; what was there before stays.
        """
        branch = self._source.branch
        wanted = f"refs/heads/{branch}" if branch else "HEAD"
        self._transfer(f"+{wanted}:{_REF}", stopped)
        return run(self.folder, "rev-parse", "--verify", f"{_REF}^{{commit}}").decode().strip()

    def ensure(self, commit: str) -> None:
        """Fetch a commit unless it is there, as after the mirror was lost or on another machine."""
        if not self.has(commit):
            self._transfer(f"+{commit}:refs/skillbus/read", lambda: False)

    def has(self, commit: str) -> bool:
        """Whether the mirror holds a commit."""
        if not (self.folder / "HEAD").is_file():
            return False
        try:
            run(self.folder, "cat-file", "-e", f"{commit}^{{tree}}")
        except PermanentError:
            return False
        return True

    def _transfer(self, refspec: str, stopped: Callable[[], bool]) -> None:
        check_source(self._source, self._settings)
        limits = self._settings.git
        remote = resolve(self._source.root, limits)
        self._prepare()
        try:
            transfer(
                self.folder,
                remote,
                refspec,
                credential=credential_of(self._source, self._settings),
                seconds=limits.seconds,
                most_bytes=limits.megabytes * _MEGABYTE,
                stopped=stopped,
            )
        finally:
            self._sweep()

    def _prepare(self) -> None:
        """Make the bare repository, without any template, or tidy one that has grown."""
        if not (self.folder / "HEAD").is_file():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            run(self.folder, "init", "--bare", "--quiet", "--template=")
        packs = list((self.folder / "objects" / "pack").glob("*.pack"))
        too_large = size_of(self.folder) > self._settings.git.megabytes * _MEGABYTE
        if len(packs) >= _MOST_PACKS or too_large:
            # Who reads an older commit right now may go on for a while.
            run(self.folder, "gc", "--quiet", "--prune=1.hour.ago", seconds=_TIDY_SECONDS)

    def _sweep(self) -> None:
        """Remove what an ended fetch left half received."""
        objects = self.folder / "objects"
        for left in (*objects.glob("pack/tmp_*"), *objects.glob("tmp_objdir-*")):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
        for name in ("shallow.lock", f"{_REF}.lock", "packed-refs.lock"):
            (self.folder / name).unlink(missing_ok=True)


def folder_of(source_id: str, settings: Settings) -> Path:
    """The folder of a source's mirror; an id may hold what a folder's name may not."""
    name = quote(source_id, safe="")
    if len(name) > _LONGEST_NAME:
        name = hashlib.sha256(source_id.encode()).hexdigest()
    return settings.home / "git" / f"{name}.git"


def drop_mirror(source_id: str, settings: Settings) -> None:
    """Delete the mirror of a source that was removed."""
    shutil.rmtree(folder_of(source_id, settings), ignore_errors=True)
