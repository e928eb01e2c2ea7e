"""Sessions of the console: a bearer token in an encrypted cookie, and CSRF tokens bound to it.

The server stores no sessions: each request is authenticated with the token in its cookie, as
if it had sent the token in the `Authorization` header. A revoked or expired token therefore
ends its sessions at once, on every gateway that has the key. The journal has the ids of
sessions that were logged out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import structlog
from cryptography.fernet import Fernet, InvalidToken
from starlette.requests import cookie_parser

from config.errors import MisconfiguredError, UsageError
from config.settings import Settings
from workers.http.tokens import open_token_store

log = structlog.get_logger()

IDLE_SECONDS = 12 * 3_600
"""Time after which an unused session ends."""

RENEW_SECONDS = 600
"""Age from which the cookie of a used session is replaced by a new one."""

MAX_SECONDS = 7 * 86_400
"""Time after log-in at which a session ends, however much it is used."""

ENDED_SECONDS = IDLE_SECONDS + RENEW_SECONDS
"""Time for which a log-out is kept: another request may renew the cookie meanwhile."""

MAX_TOKEN_BYTES = 2_600
"""Maximum length of a bearer token: browsers drop cookies above 4,096 bytes."""

_NONCE_BYTES = 16


class Session(NamedTuple):
    """A session.

    secret: its bearer token, "" while not logged in. begun: time of the log-in, in seconds since
    the epoch. sealed: time at which the cookie was sealed.
    """

    id: str
    secret: str
    begun: float
    sealed: float


class ConsoleSessions:
    """Seals sessions into cookies and opens them; threads may share it.

    key: 32 bytes, URL-safe base64. A cookie can only be opened with the key that sealed it.
    """

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)
        self._csrf_key = hashlib.sha256(b"csrf\0" + key).digest()
        # Browsers send cookies to all ports of a host, so consoles on one
        # host need different names.
        self.cookie_name = f"skillbus_{hashlib.sha256(b'name' + key).hexdigest()[:8]}"

    def begin(self, secret: str = "") -> Session:
        """Return a new session; raises UsageError for a token that is too long for a cookie."""
        if len(secret.encode()) > MAX_TOKEN_BYTES:
            raise UsageError(
                f"this token has more than {MAX_TOKEN_BYTES} bytes, too many for a cookie; log in "
                "with one that names fewer groups, or one of `skillbus tokens add`"
            )
        now = time.time()
        return Session(secrets.token_hex(16), secret, now, now)

    def seal(self, session: Session) -> str:
        """Return the value of the cookie of a session."""
        data = json.dumps([session.id, session.secret, session.begun])
        return self._fernet.encrypt_at_time(data.encode(), int(session.sealed)).decode()

    def open(self, headers: Mapping[str, str]) -> Session | None:
        """Return the session of a request by its headers (lower-case names), or None."""
        # Not `http.cookies`: it reads nothing after an odd cookie of another program on the host.
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie_name)
        if cookie is None:
            return None
        now = time.time()
        sealed = cookie.encode()
        try:
            text = self._fernet.decrypt_at_time(sealed, IDLE_SECONDS, int(now))
            session_id, secret, begun = json.loads(text)
            session = Session(session_id, secret, begun, self._fernet.extract_timestamp(sealed))
        except (InvalidToken, ValueError):
            return None
        return session if now <= session.begun + MAX_SECONDS else None

    def renew(self, session: Session) -> Session | None:
        """Return the session with a new time of sealing; None while its cookie is recent."""
        now = time.time()
        return session._replace(sealed=now) if now > session.sealed + RENEW_SECONDS else None

    def create_csrf_token(self, session: Session) -> str:
        """Return a CSRF token of a session; each call returns another, so that compressed pages do
        not reveal it (BREACH)."""
        nonce = secrets.token_hex(_NONCE_BYTES)
        return nonce + self._sign(session, nonce)

    def is_csrf_token(self, session: Session, token: str) -> bool:
        """Return whether a CSRF token belongs to this session."""
        nonce, signature = token[: 2 * _NONCE_BYTES], token[2 * _NONCE_BYTES :]
        return hmac.compare_digest(signature.encode(), self._sign(session, nonce).encode())

    def _sign(self, session: Session, nonce: str) -> str:
        signed = f"{session.id}\0{nonce}".encode()
        return hmac.new(self._csrf_key, signed, hashlib.sha256).hexdigest()


def open_console_sessions(settings: Settings) -> ConsoleSessions:
    """Return the sessions of a deployment, with the key in `gateway.console_key_file`.

    By default the key is in a file next to the token file, which gateways share; it is created on
    first use. If it cannot be written, the key is in memory only, and sessions end with the
    process. Raises MisconfiguredError for an invalid key.
    """
    named = settings.gateway.console_key_file
    path = named or open_token_store(settings).path.with_name("console.key")
    key = _read_key(path)
    if key is None and named is not None:
        raise MisconfiguredError(f"gateway.console_key_file: {path} does not exist")
    if key is None:
        key = _create_key(path)
    try:
        return ConsoleSessions(key)
    except ValueError:
        raise MisconfiguredError(
            f"gateway.console_key_file: {path} must hold 32 random bytes as URL-safe base64, such "
            "as `head -c 32 /dev/urandom | basenc --base64url` prints"
        ) from None


def _read_key(path: Path) -> bytes | None:
    try:
        return path.read_bytes().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MisconfiguredError(
            f"gateway.console_key_file: {path} cannot be read: {error.strerror}"
        ) from None


def _create_key(path: Path) -> bytes:
    """Create a key file and return its key, or that of another process that was faster."""
    key = Fernet.generate_key()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(key + b"\n")
        try:
            os.link(temporary, path)  # atomic, and never replaces a key
        finally:
            temporary.unlink()
    except FileExistsError:
        return path.read_bytes().strip()
    except OSError as error:
        log.warning(
            "sessions of the console end with this process: their key cannot be stored; set "
            "gateway.console_key_file",
            file=str(path),
            reason=error.strerror,
        )
    return key
