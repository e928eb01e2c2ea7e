"""Authentication: finds the caller of a request, and its scope, by its bearer token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from skills.access import UNRESTRICTED, Reader
from workers.http.tokens import ANONYMOUS, TokenScope, TokenStore


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    name: of the token, "" for the user on the home's socket. sources: ids of the sources
    that it may change, None for any. groups: groups that it reads with; a caller of
    scope admin sees everything.
    """

    name: str
    scope: TokenScope
    sources: frozenset[str] | None = None
    groups: frozenset[str] = frozenset()

    @property
    def is_admin(self) -> bool:
        """Whether this caller sees everything."""
        return self.scope is TokenScope.ADMIN

    @property
    def reader(self) -> Reader:
        """Reader of this caller, which limits the skills it may see."""
        return UNRESTRICTED if self.is_admin else Reader.of(self.groups)

    def can_see(self, owner: str) -> bool:
        """Return whether this caller may read the jobs of the caller named `owner`."""
        return owner == self.name or self.is_admin


LOCAL_USER = Caller("", TokenScope.ADMIN)
"""The user of this machine, on the home's socket."""

ANONYMOUS_CALLER = Caller(ANONYMOUS, TokenScope.READ)


def authenticate(
    headers: Mapping[str, str], tokens: TokenStore | None, *, allow_anonymous: bool = False
) -> Caller | None:
    """Return the caller by the request headers (lower-case names), None if not authenticated.

    tokens: None on the home's socket, where the local user sends every request. allow_anonymous:
    whether a request without a token is accepted as long as no token was ever added.

    Raises MisconfiguredError if the token file cannot be used.
    """
    if tokens is None:
        return LOCAL_USER
    if "authorization" not in headers:
        return ANONYMOUS_CALLER if allow_anonymous and not tokens.are_configured() else None
    secret = get_bearer(headers)
    found = tokens.find(secret) if secret else None
    if found is None:
        return None
    return Caller(found.name, found.granted_scope, groups=frozenset(found.groups))


def get_bearer(headers: Mapping[str, str]) -> str:
    """Return the bearer token of a request, or ""."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


async def get_caller(request: Request) -> Caller:
    """Return the caller that `AccessMiddleware` found."""
    caller: Caller = request.state.caller
    return caller


CurrentCaller = Annotated[Caller, Depends(get_caller)]


@dataclass(frozen=True, slots=True)
class RequiredScope:
    """FastAPI dependency that raises HTTPException (403) for callers without this scope."""

    scope: TokenScope

    async def __call__(self, caller: CurrentCaller) -> None:
        """Check the caller of a request."""
        check_scope(caller, self.scope)


def require_scope(scope: TokenScope) -> Any:
    """Return a dependency of a route that admits only callers with this scope."""
    return Depends(RequiredScope(scope))


NEEDS_READ, NEEDS_WRITE, NEEDS_ADMIN = ([require_scope(scope)] for scope in TokenScope)
"""Dependencies of a route that admits only callers with this scope."""


def check_scope(caller: Caller, scope: TokenScope) -> None:
    """Raise HTTPException (403) unless the caller has this scope."""
    if caller.scope < scope:
        raise HTTPException(
            403,
            f"this needs a token of scope {scope.name.lower()}, and yours has scope "
            f"{caller.scope.name.lower()}",
        )


def check_source(caller: Caller, source_id: str) -> None:
    """Raise HTTPException (403) unless the caller may change this source."""
    if caller.sources is not None and source_id not in caller.sources:
        raise HTTPException(403, f"this token may not change the source {source_id!r}")
