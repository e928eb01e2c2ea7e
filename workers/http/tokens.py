"""Bearer tokens of the gateway: their names, scopes and expiry, stored in a file.

A token is 256 random bits, so a SHA-256 hash suffices: a slow hash protects only secrets that can
be guessed. The file is read again whenever it has changed, so a rotation needs no restart.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from config.errors import MisconfiguredError, NotFoundError, UsageError
from config.settings import Settings
from skills.access import parse_groups
from workers.library.user_files import write_atomically

ANONYMOUS = "anonymous"
"""Name of callers without a token; accepted on loopback as long as no token was added."""

_PREFIX = "skb_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
MAX_NAME_CHARACTERS = 64


class TokenScope(IntEnum):
    """Permissions of a token; each scope includes the scopes before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token. created, expires: seconds since the epoch; expires 0: never. groups: groups "
    "that it reads with, in addition to `everyone`."""

    name: str
    scope: str
    sha256: str
    created: float
    expires: float = 0.0
    groups: tuple[str, ...] = ()

    @property
    def granted_scope(self) -> TokenScope:
        """The scope as an enum member."""
        return TokenScope[self.scope.upper()]

    def is_expired(self, now: float) -> bool:
        """Return whether the token has expired."""
        return 0 < self.expires <= now


_FILE = TypeAdapter(list[Token])


def open_token_store(settings: Settings) -> TokenStore:
    """Return the token store of a deployment: `gateway.tokens_file`, or a file in its home."""
    return TokenStore(settings.gateway.tokens_file or settings.home / "tokens.json")


class TokenStore:
    """The tokens of a file; if the file is missing, loopback needs no token."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file_version: tuple[int, int, int] | None = None
        self._cached: tuple[Token, ...] = ()
        self._file_was_seen = False
        self._used: dict[str, float] = {}

    def get_last_use(self, sha256: str) -> float | None:
        """Return when the token with this hash was last found, in seconds since the epoch; None if
        it has not been found since the store was opened."""
        return self._used.get(sha256)

    def are_configured(self) -> bool:
        """Return whether the file exists, or existed before in this process.

        Therefore revoking every token, or moving the file away, admits no one. Raises
        MisconfiguredError if the file cannot be checked.
        """
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
        """Return the tokens, oldest first; raises MisconfiguredError for an unusable file."""
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
            raise MisconfiguredError(f"{self.path} is readable by others: chmod 600 {self.path}")
        try:
            tokens = _FILE.validate_json(self.path.read_bytes())
            for token in tokens:
                _ = token.granted_scope
        except (ValidationError, KeyError):
            raise MisconfiguredError(
                f"{self.path} is not a file of `skillbus tokens`; move it away and add new tokens"
            ) from None
        return tuple(tokens)

    def find(self, secret: str) -> Token | None:
        """Return the token of a secret, None if it is unknown, revoked or expired."""
        digest = _digest(secret)
        now = time.time()
        found = None
        for token in self.all():
            if hmac.compare_digest(token.sha256, digest) and not token.is_expired(now):
                found = token
        if found is not None:
            self._used[found.sha256] = now
        return found

    def add(
        self, name: str, scope: TokenScope, expires: float = 0.0, groups: Sequence[str] = ()
    ) -> str:
        """Add a token and return its secret, which is not stored.

        Raises UsageError for a name that is malformed or in use, and for a malformed group.
        """
        if not _NAME.fullmatch(name) or name == ANONYMOUS:
            raise UsageError(
                f"{name!r} cannot be a token's name: up to 64 letters, digits, `.`, `_`, `@`, "
                f"`-`, and not {ANONYMOUS}"
            )
        secret = _PREFIX + secrets.token_urlsafe(32)
        token = Token(
            name, scope.name.lower(), _digest(secret), time.time(), expires, parse_groups(groups)
        )
        with self._open_for_update() as tokens:
            if any(one.name == name for one in tokens):
                raise UsageError(
                    f"a token {name} exists already; revoke it first, or add one of another name "
                    "and revoke this one when it is no longer in use"
                )
            tokens.append(token)
        return secret

    def revoke(self, name: str) -> None:
        """Delete a token; raises NotFoundError if no token has this name."""
        with self._open_for_update() as tokens:
            kept = [token for token in tokens if token.name != name]
            if len(kept) == len(tokens):
                raise NotFoundError(f"no token {name!r}; `skillbus tokens list` lists them")
            tokens[:] = kept

    @contextmanager
    def _open_for_update(self) -> Iterator[list[Token]]:
        """Yield the tokens to be changed in place; the file is locked, and replaced atomically
        after. Raises MisconfiguredError if it cannot be written."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise MisconfiguredError(f"{self.path.parent}: {error.strerror}") from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            tokens = list(self.all())
            yield tokens
            text = json.dumps([asdict(token) for token in tokens], indent=2)
            try:
                write_atomically(self.path, text.encode() + b"\n", mode=0o600)
            except UsageError as error:
                raise MisconfiguredError(str(error)) from None
        finally:
            os.close(folder)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
