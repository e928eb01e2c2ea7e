"""Public keys of an issuer: a JSON Web Key Set (RFC 7517), fetched, read and cached."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from config.errors import MisconfiguredError, SkillbusError, TransientError
from config.inbound_settings import OidcSettings, is_safe_address

log = structlog.get_logger()

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}
_EDWARDS = ("EdDSA",)

ALGORITHMS = frozenset({*_RSA, *(one for names in _CURVES.values() for one in names), *_EDWARDS})
"""Accepted algorithms (RFC 7518, RFC 8037). All are asymmetric: with a symmetric algorithm, a
token could be signed with the public key."""

_MIN_RSA_BITS = 2048
_MAX_KEYS = 100
_MAX_BYTES = 1 << 20
_RETRY_SECONDS = 30.0
"""Minimum time between two fetches; unknown key ids in tokens cannot cause more fetches."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key. key_id: "" without an id. algorithms: those it may be used with."""

    key_id: str
    key: Any
    algorithms: frozenset[str]


def parse_keys(document: object) -> tuple[VerificationKey, ...]:
    """Return the keys of a JSON Web Key Set that can verify tokens; other keys are left out.

    Raises MisconfiguredError for a document that is not a key set, or has no such key.
    """
    rows = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise MisconfiguredError("it is not a JSON Web Key Set: it has no list `keys`")
    found = tuple(key for row in rows[:_MAX_KEYS] if (key := _parse_key(row)) is not None)
    if not found:
        raise MisconfiguredError("it has no public key for signatures with an accepted algorithm")
    return found


def _parse_key(row: object) -> VerificationKey | None:
    if not isinstance(row, dict) or row.get("use", "sig") != "sig":
        return None
    key_id, operations = row.get("kid", ""), row.get("key_ops", ["verify"])
    if not isinstance(key_id, str) or not isinstance(operations, list):
        return None
    possible = _get_algorithms(row)
    algorithms = frozenset(one for one in possible if row.get("alg", one) == one)
    if not algorithms or "verify" not in operations:
        return None
    public = {name: value for name, value in row.items() if name not in ("d", "p", "q", "alg")}
    try:
        key = PyJWK(public, algorithm=min(algorithms)).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < _MIN_RSA_BITS:
        return None
    return VerificationKey(key_id, key, algorithms)


def _get_algorithms(row: dict[str, Any]) -> set[str]:
    if row.get("kty") == "RSA":
        return set(_RSA)
    if row.get("kty") == "EC":
        return set(_CURVES.get(str(row.get("crv")), ()))
    if row.get("kty") == "OKP" and row.get("crv") in ("Ed25519", "Ed448"):
        return set(_EDWARDS)
    return set()


def load_keys(settings: OidcSettings) -> tuple[VerificationKey, ...]:
    """Read the keys of an issuer from `oidc.jwks`, or from the address in its discovery document.

    Raises TransientError if they are not available now, MisconfiguredError if
    the document is unusable.
    """
    place = settings.jwks or _discover(settings)
    if "://" in place:
        content = _fetch(place, settings.timeout_seconds)
    else:
        try:
            with Path(place).expanduser().open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        # RuntimeError: `~` of a user that does not exist; ValueError: NUL.
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise MisconfiguredError(f"oidc.jwks: {place}: {reason}") from None
    try:
        return parse_keys(_parse_json(content))
    except MisconfiguredError as error:
        raise MisconfiguredError(f"the keys at {place}: {error}") from None


def _discover(settings: OidcSettings) -> str:
    """Return the address of the keys, from the discovery document (OpenID
    Connect Discovery 1.0)."""
    address = f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        document = _parse_json(_fetch(address, settings.timeout_seconds))
    except MisconfiguredError as error:
        raise MisconfiguredError(f"{address}: {error}") from None
    if not isinstance(document, dict) or document.get("issuer") != settings.issuer:
        raise MisconfiguredError(f"{address}: its `issuer` is not oidc.issuer, {settings.issuer}")
    place = document.get("jwks_uri")
    if not isinstance(place, str) or not is_safe_address(place):
        raise MisconfiguredError(f"{address}: its `jwks_uri` is not an https address")
    return place


def _parse_json(content: bytes) -> object:
    if len(content) > _MAX_BYTES:
        raise MisconfiguredError(f"it has more than {_MAX_BYTES} bytes")
    try:
        document: object = json.loads(content)
    except (ValueError, RecursionError):
        raise MisconfiguredError("it is not JSON") from None
    return document


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that keys come from the address that was checked."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Return None: the redirect is an error."""


def _fetch(address: str, seconds: float) -> bytes:
    """Return the content at a safe address; raises TransientError if it does not come in time."""
    host = urlsplit(address).hostname
    deadline = time.monotonic() + seconds
    opener = urllib.request.build_opener(_NoRedirects)
    content = b""
    try:
        with opener.open(address, timeout=seconds) as response:
            while len(content) <= _MAX_BYTES and (part := response.read1(1 << 16)):
                content += part
                if time.monotonic() > deadline:
                    raise TimeoutError
    except urllib.error.HTTPError as error:
        raise TransientError(f"{address} answers with status {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise TransientError(f"{host} does not answer: {reason}") from None
    return content


class KeyCache:
    """The keys of an issuer; threads may share it.

    They are fetched again when they are old, or when an unknown key is needed, but at most every 30
    seconds. If a fetch fails, the known keys stay.

    load: fetches the keys. lifetime: age in seconds from which they are old.
    """

    def __init__(
        self,
        load: Callable[[], Sequence[VerificationKey]],
        lifetime: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._lifetime = lifetime
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Sequence[VerificationKey] = ()
        self._loaded_at = float("-inf")
        self._tried_at = float("-inf")

    @property
    def is_empty(self) -> bool:
        """Whether no key was ever fetched."""
        return not self._keys

    def find(self, key_id: str, algorithm: str) -> VerificationKey | None:
        """Return the key of an id and an algorithm; without an id, the only
        key for the algorithm."""
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        if key_id:
            fitting = [key for key in fitting if key.key_id == key_id]
        return fitting[0] if len(fitting) == 1 else None

    def is_due(self, key_id: str, algorithm: str) -> bool:
        """Return whether the keys have to be fetched before this key is used."""
        now = self._clock()
        if now - self._tried_at < _RETRY_SECONDS:
            # A request whose key is unknown waits for a fetch that is running.
            return self._lock.locked() and self.find(key_id, algorithm) is None
        return now - self._loaded_at > self._lifetime or self.find(key_id, algorithm) is None

    def refresh(self, key_id: str, algorithm: str) -> None:
        """Fetch the keys if a fetch is due. Only one thread does; other threads wait if
        their key is unknown."""
        if not self._lock.acquire(blocking=self.find(key_id, algorithm) is None):
            return
        try:
            if self._clock() - self._tried_at < _RETRY_SECONDS:
                return
            self._tried_at = self._clock()
            self._keys = tuple(self._load())
            self._loaded_at = self._clock()
        except SkillbusError as error:
            log.warning("keys of the issuer cannot be fetched", reason=str(error))
        finally:
            self._lock.release()
