"""Verification of JSON Web Tokens (RFC 7519) of an issuer, and the callers that send them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import anyio
import jwt
import structlog
from anyio import to_thread
from jwt.exceptions import PyJWTError
from starlette.exceptions import HTTPException

from config.inbound_settings import OidcSettings
from skills.access import is_group
from workers.http.authentication import Caller
from workers.http.oidc.keys import ALGORITHMS, KeyCache, VerificationKey, load_keys
from workers.http.tokens import TokenScope

log = structlog.get_logger()

_MAX_CHARACTERS = 16_384
_LEEWAY_SECONDS = 30
"""Accepted difference between the clocks of the issuer and of this machine."""

_FETCHING_THREADS = 4
_OWNER = re.compile(r"[A-Za-z0-9._@:/+-]{1,90}")
"""Form of a `sub` that can be a part of the owner of an event."""


class OidcVerifier:
    """Checks the tokens of the issuer of the settings; for one event loop."""

    def __init__(self, settings: OidcSettings, keys: KeyCache | None = None) -> None:
        self._settings = settings
        self._keys = keys or KeyCache(lambda: load_keys(settings), settings.cache_seconds)
        self._limiter = anyio.CapacityLimiter(_FETCHING_THREADS)

    async def authenticate(self, token: str) -> Caller | None:
        """Return the caller of a token, None if the token is invalid; the reason is only logged.

        Raises HTTPException: 403 for a valid token that grants no scope, 503
        while no keys are available.
        """
        try:
            claims = await self._verify(token)
        except PyJWTError as error:
            log.info("a token of the issuer was refused", reason=type(error).__name__)
            return None
        return make_caller(self._settings, claims)

    async def _verify(self, token: str) -> dict[str, Any]:
        """Return the claims of a token; raises PyJWTError if the token is invalid."""
        if len(token) > _MAX_CHARACTERS or token.count(".") != 2 or not token.isascii():
            raise jwt.DecodeError("not a token")
        try:
            header = jwt.get_unverified_header(token)
        except (ValueError, RecursionError):
            raise jwt.DecodeError("not a token") from None
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if not isinstance(algorithm, str) or not isinstance(key_id, str) or "crit" in header:
            raise jwt.DecodeError("not a header that is accepted")
        if algorithm not in ALGORITHMS:
            raise jwt.InvalidAlgorithmError("not an accepted algorithm")
        if self._keys.is_due(key_id, algorithm):
            await to_thread.run_sync(self._keys.refresh, key_id, algorithm, limiter=self._limiter)
        key = self._keys.find(key_id, algorithm)
        if self._keys.is_empty:
            raise HTTPException(503, "tokens cannot be checked now; try again")
        if key is None:
            raise jwt.InvalidKeyError("no such key")
        return self._decode(token, key, algorithm)

    def _decode(self, token: str, key: VerificationKey, algorithm: str) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise jwt.DecodeError("not a token") from None
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise jwt.InvalidTokenError("not a subject")
        return claims


def make_caller(settings: OidcSettings, claims: Mapping[str, Any]) -> Caller:
    """Return the caller of a valid token by the values of `oidc.groups_claim`.

    Its scope is the highest that the values grant. It may change the sources of any value that
    grants `write`. It reads with all values that can be names of groups, including those without a
    scope. Raises HTTPException (403) if the values grant no scope.
    """
    claimed = read_values(claims, settings.groups_claim)
    values = [one for one in claimed if one in settings.scopes]
    if not values:
        raise HTTPException(403, "no value of this token grants a scope (oidc.scopes)")
    scopes = {value: TokenScope[settings.scopes[value].upper()] for value in values}
    writing = [value for value, scope in scopes.items() if scope >= TokenScope.WRITE]
    sources = None
    if writing and all(value in settings.sources for value in writing):
        sources = frozenset(one for value in writing for one in settings.sources[value])
    groups = frozenset(filter(is_group, claimed))
    return Caller(make_name(str(claims["sub"])), max(scopes.values()), sources, groups)


def make_name(subject: str) -> str:
    """Return the name of the caller with a `sub`; no token and no other `sub` has the same name."""
    if _OWNER.fullmatch(subject):
        return f"oidc:{subject}"
    return f"oidc-sha256:{hashlib.sha256(subject.encode('utf-8', 'surrogatepass')).hexdigest()}"


def read_values(claims: Mapping[str, Any], name: str) -> list[str]:
    """Return the values of a claim: a list, or words of a text. Dots in its name
    denote a nested claim."""
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return [one for one in value if isinstance(one, str)]
    return []
