"""Tokens: admins list, add and revoke them. A running gateway applies changes at once."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import Field

from skills.access import MAX_GROUPS, GroupName
from workers.audit.requests import note_object
from workers.http.dependencies import from_state
from workers.http.models import RequestModel, ResponseModel
from workers.http.tokens import MAX_NAME_CHARACTERS, TokenScope, TokenStore

ScopeName = Literal["read", "write", "admin"]


class NewToken(RequestModel):
    """A token to add. groups: that it reads with, in addition to `everyone`. expires_in_seconds:
    its lifetime; unset: unlimited."""

    name: str = Field(min_length=1, max_length=MAX_NAME_CHARACTERS)
    scope: ScopeName = "read"
    groups: tuple[GroupName, ...] = Field((), max_length=MAX_GROUPS)
    expires_in_seconds: int | None = Field(None, ge=60, le=10 * 366 * 86_400)


class TokenData(ResponseModel):
    """A token. created, expires, last_used: seconds since the epoch; expires None: never,
    last_used None: not since this gateway was started."""

    name: str
    scope: str
    groups: list[str]
    created: float
    expires: float | None
    is_expired: bool
    last_used: float | None


class AddedToken(ResponseModel):
    """A token that was added. token: its secret, which is not stored and not shown again."""

    name: str
    token: str


class TokenList(ResponseModel):
    """All tokens, oldest first."""

    tokens: list[TokenData]


# The store with which the gateway checks requests; another one on the home's socket, where it
# checks none.
CurrentTokens = Annotated[TokenStore, from_state("tokens")]

router = APIRouter(tags=["tokens"])


@router.get("/v1/tokens")
def list_tokens(tokens: CurrentTokens) -> TokenList:
    """List the tokens; their secrets are not stored."""
    now = time.time()
    return TokenList(
        tokens=[
            TokenData(
                name=one.name,
                scope=one.scope,
                groups=list(one.groups),
                created=one.created,
                expires=one.expires or None,
                is_expired=one.is_expired(now),
                last_used=tokens.get_last_use(one.sha256),
            )
            for one in tokens.all()
        ]
    )


@router.post("/v1/tokens", status_code=201)
def add_token(tokens: CurrentTokens, new: NewToken, request: Request) -> AddedToken:
    """Add a token and show its secret once. The new token remains valid when yours ends."""
    note_object(request, " ".join([new.name, new.scope, *new.groups]))
    seconds = new.expires_in_seconds
    expires = 0.0 if seconds is None else time.time() + seconds
    secret = tokens.add(new.name, TokenScope[new.scope.upper()], expires, new.groups)
    return AddedToken(name=new.name, token=secret)


@router.delete("/v1/tokens/{name}", status_code=204)
def revoke_token(tokens: CurrentTokens, name: str) -> None:
    """Revoke a token: requests with it are rejected from now on, your own included."""
    tokens.revoke(name)
