"""Tokens: admins list, add and revoke them. A running gateway applies changes at once."""

from __future__ import annotations

import time
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from config.settings import Settings
from skills.access import MAX_GROUPS, GroupName
from workers.audit.requests import note_object
from workers.http.tokens import MAX_NAME_CHARACTERS, TokenScope, TokenStore, open_token_store

ScopeName = Literal["read", "write", "admin"]


class NewToken(BaseModel):
    """A token to add. groups: that it reads with, besides that of everyone. expires_in_seconds:
    its lifetime; unset: unlimited."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=MAX_NAME_CHARACTERS)
    scope: ScopeName = "read"
    groups: tuple[GroupName, ...] = Field((), max_length=MAX_GROUPS)
    expires_in_seconds: int | None = Field(None, ge=60, le=10 * 366 * 86_400)


class TokenData(BaseModel):
    """A token. created, expires, last_used: seconds since the epoch; expires None: never,
    last_used None: not since this gateway was started."""

    model_config = ConfigDict(frozen=True)

    name: str
    scope: str
    groups: list[str]
    created: float
    expires: float | None
    is_expired: bool
    last_used: float | None


class AddedToken(BaseModel):
    """A token that was added. token: its secret, which is not stored and not shown again."""

    model_config = ConfigDict(frozen=True)

    name: str
    token: str


class TokenList(BaseModel):
    """All tokens, oldest first."""

    model_config = ConfigDict(frozen=True)

    tokens: list[TokenData]


class TokenService:
    """Manages the tokens of a deployment. store: the store with which the gateway checks requests;
    None on the home's socket, where it checks none."""

    def __init__(self, settings: Settings, store: TokenStore | None) -> None:
        self._settings = settings
        self._store = store

    @property
    def _tokens(self) -> TokenStore:
        return self._store or open_token_store(self._settings)

    def list_tokens(self) -> list[TokenData]:
        """Return all tokens, oldest first."""
        store, now = self._tokens, time.time()
        return [
            TokenData(
                name=one.name,
                scope=one.scope,
                groups=list(one.groups),
                created=one.created,
                expires=one.expires or None,
                is_expired=one.is_expired(now),
                last_used=store.get_last_use(one.sha256),
            )
            for one in store.all()
        ]

    def add(self, new: NewToken) -> AddedToken:
        """Add a token; raises UsageError for a name that is malformed or in use."""
        seconds = new.expires_in_seconds
        expires = 0.0 if seconds is None else time.time() + seconds
        secret = self._tokens.add(new.name, TokenScope[new.scope.upper()], expires, new.groups)
        return AddedToken(name=new.name, token=secret)

    def revoke(self, name: str) -> None:
        """Delete a token; raises NotFoundError if there is none of this name."""
        self._tokens.revoke(name)


def token_routes(service: TokenService) -> APIRouter:
    """Return the routes of tokens."""
    router = APIRouter(tags=["tokens"])

    @router.get("/v1/tokens")
    def list_tokens() -> TokenList:
        """List the tokens; their secrets are not stored."""
        return TokenList(tokens=service.list_tokens())

    @router.post("/v1/tokens", status_code=201)
    def add_token(new: NewToken, request: Request) -> AddedToken:
        """Add a token and show its secret once. The new token remains valid when yours ends."""
        note_object(request, describe_new(new))
        return service.add(new)

    @router.delete("/v1/tokens/{name}", status_code=204)
    def revoke_token(name: str) -> Response:
        """Revoke a token: requests with it are rejected from now on, your own included."""
        service.revoke(name)
        return Response(status_code=204)

    return router


def describe_new(new: NewToken) -> str:
    """Return the description of an added token for the audit log."""
    return " ".join([new.name, new.scope, *new.groups])
