"""Tokens: who may call the gateway, and what each may do.

A token is 256 random bits, so its SHA-256 is kept and no slow hash is needed: there is nothing to
guess. The file is read again whenever it has changed; nothing is restarted for a rotation.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from config.errors import MisconfiguredError, NotFoundError, UsageError
from config.settings import Settings
from workers.library.user_files import write_atomically

ANONYMOUS = "anonymous"
"""Whoever asks on loopback while there are no tokens."""

_PREFIX = "skb_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class TokenScope(IntEnum):
    """What a token may do; each may do what those before it may."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept. created, expires: seconds since the epoch, expires 0: never."""

    name: str
    scope: str
    sha256: str
    created: float
    expires: float = 0.0

    @property
    def granted_scope(self) -> TokenScope:
        """Its scope."""
        return TokenScope[self.scope.upper()]

    def is_expired(self, now: float) -> bool:
        """Whether it has expired."""
        return 0 < self.expires <= now


_FILE = TypeAdapter(list[Token])


def open_token_store(settings: Settings) -> TokenStore:
    """The tokens of a deployment, in the file that its settings name."""
    return TokenStore(settings.gateway.tokens_file or settings.home / "tokens.json")


class TokenStore:
    """The tokens of a file, which may not be there: then nobody needs one on loopback."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file_version: tuple[int, int, int] | None = None
        self._cached: tuple[Token, ...] = ()
        self._file_was_seen = False

    def are_configured(self) -> bool:
        """Whether there is a file, even one whose tokens were all revoked, or was one before: a
        file that is moved away lets nobody in. Raises SetupError when that cannot be told."""
        with self._lock:
            try:
                self.path.lstat()
                self._file_was_seen = True
            except FileNotFoundError:
                pass
            except OSError as error:
                raise MisconfiguredError(f"{self.path}: {error.strerror}") from None
            return self._file_was_seen

    def all(self) -> tuple[Token, ...]:
        """The tokens, oldest first; raises SetupError for a file that cannot be used."""
        with self._lock:
            try:
                found = self.path.stat()
                self._file_was_seen = True
                version = (found.st_ctime_ns, found.st_size, found.st_ino)
                if version != self._file_version:
                    self._cached = self._read(found.st_mode)
                    self._file_version = version
            except FileNotFoundError:
                self._cached, self._file_version = (), None
            except OSError as error:
                raise MisconfiguredError(f"{self.path}: {error.strerror}") from None
            return self._cached

    def _read(self, mode: int) -> tuple[Token, ...]:
        if stat.S_IMODE(mode) & 0o077:
            raise MisconfiguredError(f"{self.path} can be read by others: chmod 600 {self.path}")
        try:
            tokens = _FILE.validate_json(self.path.read_bytes())
            for token in tokens:
                _ = token.granted_scope
        except (ValidationError, KeyError):
            raise MisconfiguredError(
                f"{self.path} is no file of `skillbus tokens`; move it away and add tokens anew"
            ) from None
        return tuple(tokens)

    def find(self, secret: str) -> Token | None:
        """The token that a secret is, None for one that is unknown, revoked or expired."""
        digest = _digest(secret)
        now = time.time()
        found = None
        for token in self.all():
            if hmac.compare_digest(token.sha256, digest) and not token.is_expired(now):
                found = token
        return found

    def add(self, name: str, scope: TokenScope, expires: float = 0.0) -> str:
        """Make a token; the secret, which is kept nowhere. Raises UsageError for its name."""
        if not _NAME.fullmatch(name) or name == ANONYMOUS:
            raise UsageError(
                f"{name!r} cannot be a token's name: up to 64 letters, digits, `.`, `_`, `@`, "
                f"`-`, and not {ANONYMOUS}"
            )
        secret = _PREFIX + secrets.token_urlsafe(32)
        token = Token(name, scope.name.lower(), _digest(secret), time.time(), expires)
        with self._open_for_update() as tokens:
            if any(one.name == name for one in tokens):
                raise UsageError(
                    f"there is a token {name} already; revoke it first, or add another beside it "
                    "and revoke the old one when nobody uses it any more"
                )
            tokens.append(token)
        return secret

    def revoke(self, name: str) -> None:
        """Forget a token; raises NotFoundError when there is none of this name."""
        with self._open_for_update() as tokens:
            kept = [token for token in tokens if token.name != name]
            if len(kept) == len(tokens):
                raise NotFoundError(f"no token {name!r}; `skillbus tokens list` names them")
            tokens[:] = kept

    @contextmanager
    def _open_for_update(self) -> Iterator[list[Token]]:
        """The tokens, to be changed in place; one process at a time, and written whole."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise UsageError(f"{self.path.parent}: {error.strerror}") from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            tokens = list(self.all())
            yield tokens
            text = json.dumps([asdict(token) for token in tokens], indent=2)
            write_atomically(self.path, text.encode() + b"\n", mode=0o600)
        finally:
            os.close(folder)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
