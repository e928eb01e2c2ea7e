"""Sources: where skills come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Self
from urllib.parse import urlsplit

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.exceptions import HTTPException

from config.errors import NotFoundError, SetupError, UsageError
from graph.protocol import Source, State
from skills.events import GitOrigin, SourceChanged, SourceRemoved, describe
from skills.events.requests import SourceId
from tasks.sources.git.mirror import check_source
from tasks.sources.readers import known_source
from workers.backend.channel import Channel
from workers.http.access import OWN, Asking, Caller, needs, require
from workers.http.idempotency import IdempotencyKey
from workers.http.jobs import Accepted, accept_event
from workers.http.source_roots import check_root
from workers.http.tokens import Scope
from workers.monitoring.status import told_of_source

_GIT = frozenset(GitOrigin.model_fields)


class SourceData(BaseModel):
    """A source, and how it stands with it.

    kind: `directory`, `git` or `upload`. last_success, last_attempt: seconds since the epoch, 0:
    never. lag_seconds: since the last success, null: never. Of a git source alone: what is
    fetched, how often (0: as the settings say), the `commit` that the library is in step with,
    and why the last attempt failed, "" when it did not. published, failed, pending: skills.
    """

    model_config = ConfigDict(frozen=True)

    source_id: str
    kind: str
    root: str
    last_success: float
    lag_seconds: float | None
    branch: str | None = None
    path: str | None = None
    licences: list[str] | None = None
    poll_seconds: float | None = None
    commit: str | None = None
    last_attempt: float | None = None
    last_error: str | None = None
    published: int
    failed: int
    pending: int


class Sources(BaseModel):
    """All sources, by id."""

    model_config = ConfigDict(frozen=True)

    sources: list[SourceData]


class NewSource(GitOrigin):
    """A directory on the machine that serves (`root`, with `source_id`), or a git repository
    (`url`; `source_id` is its name at default)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={"oneOf": [{"required": ["source_id", "root"]}, {"required": ["url"]}]},
    )

    source_id: SourceId | None = None
    root: str = Field(
        "",
        max_length=4096,
        pattern=r"^(/[^\x00]*)?$",
        description="a directory below one of `gateway.roots`; on the home's socket, any",
    )
    url: str = Field(
        "", max_length=4096, description="of a git repository, for admins; without a password"
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.root) == bool(self.url):
            raise ValueError("give either the root of a directory or the url of a repository")
        if self.root and self.source_id is None:
            raise ValueError("a directory needs a source_id")
        if self.root and self.model_fields_set & _GIT:
            given = ", ".join(sorted(self.model_fields_set & _GIT))
            raise ValueError(f"{given}: only for repositories")
        return self


class AcceptedSource(Accepted):
    """An event that is on disk and will be worked on, and the id that the source gets."""

    source_id: str


def source_routes(channel: Channel) -> APIRouter:
    """The routes of sources over an open channel."""
    router = APIRouter(tags=["sources"])

    @router.get("/v1/sources", response_model=Sources, response_model_exclude_unset=True)
    def list_sources() -> Mapping[str, Any]:
        """All sources, how it stands with each, and how many skills of it there are by state."""
        return {"sources": _described(channel, channel.graph.sources())}

    @router.post("/v1/sources", status_code=202, dependencies=[needs(Scope.WRITE)])
    def add_source(
        source: NewSource, response: Response, caller: Asking, key: IdempotencyKey = None
    ) -> AcceptedSource:
        """Read a directory as a source, now and whenever it changes; or, for admins, follow a git
        repository, or follow it in another way than before."""
        of_kind = _repository if source.url else _directory
        changed = of_kind(channel, caller, source)
        accepted = accept_event(channel, caller, changed, key, response)
        return AcceptedSource(id=accepted.id, source_id=changed.source_id)

    @router.post("/v1/sources/{source_id:path}", status_code=202, dependencies=[needs(Scope.WRITE)])
    def refresh_source(
        source_id: str, response: Response, caller: Asking, key: IdempotencyKey = None
    ) -> Accepted:
        """Refresh a source: fetch the repository, or look at the directory, now."""
        _find(channel, source_id)
        return accept_event(channel, caller, SourceChanged(source_id=source_id), key, response)

    @router.get(
        "/v1/sources/{source_id:path}", response_model=SourceData, response_model_exclude_unset=True
    )
    def show_source(source_id: str) -> Mapping[str, Any]:
        """One source, and how it stands with it."""
        return _described(channel, [_find(channel, source_id)])[0]

    @router.delete(
        "/v1/sources/{source_id:path}", status_code=202, dependencies=[needs(Scope.WRITE)]
    )
    def remove_source(
        source_id: str, response: Response, caller: Asking, key: IdempotencyKey = None
    ) -> Accepted:
        """Forget a source and withdraw all its skills. Directories and repositories are left as
        they are; skills that came by value are deleted."""
        _find(channel, source_id)
        return accept_event(channel, caller, SourceRemoved(source_id=source_id), key, response)

    return router


def _directory(channel: Channel, caller: Caller, wanted: NewSource) -> SourceChanged:
    source_id = wanted.source_id or ""
    root = check_root(channel, caller, source_id, wanted.root)
    _check_known(channel, Source(source_id, "directory", root))
    return SourceChanged(source_id=source_id, root=root)


def _repository(channel: Channel, caller: Caller, wanted: NewSource) -> SourceChanged:
    """The event that has a repository followed, checked as `skillbus sources add` does.

    Where its name leads is looked at when it is fetched, by the machine that does.
    """
    require(caller, Scope.ADMIN)
    _check_credential(channel, caller, wanted)
    values = {name: getattr(wanted, name) for name in _GIT}
    git = GitOrigin(**values | {"path": wanted.path.strip("/")})
    try:
        check_source(Source("", "git", wanted.url, **dict(git)), channel.settings)
    except SetupError as error:
        raise UsageError(str(error)) from None
    name = wanted.source_id or PurePosixPath(urlsplit(wanted.url).path).name.removesuffix(".git")
    try:
        changed = SourceChanged(source_id=name, root=wanted.url, git=git)
    except ValidationError as error:
        raise HTTPException(422, f"{describe(error)}; name it by source_id") from None
    _check_known(channel, Source(name, "git", wanted.url))
    return changed


def _check_credential(channel: Channel, caller: Caller, wanted: NewSource) -> None:
    """Raise UsageError where a token would have a credential sent to who does not get it already.

    Whoever has an admin's token could have it sent home, and a token tells no secrets.
    """
    if not wanted.credential_file or caller is OWN:
        return
    named = (wanted.url, wanted.credential_file)
    if named not in {(one.root, one.credential_file) for one in channel.graph.sources()}:
        raise UsageError(
            "credential_file: the first time, a credential is given to a repository by "
            "`skillbus sources add URL --credential-file FILE` where the gateway runs"
        )


def _check_known(channel: Channel, source: Source) -> None:
    """Raise UsageError when another source has the id."""
    known = known_source(channel.graph.sources(), source.source_id)
    if known is not None and (known.kind, known.root) != (source.kind, source.root):
        raise UsageError(
            f"source {known.source_id} is already {known.kind} {known.root}: choose another id, or "
            "delete that source first"
        )


def _find(channel: Channel, source_id: str) -> Source:
    source = known_source(channel.graph.sources(), source_id)
    if source is None:
        raise NotFoundError(f"no source {source_id!r}")
    return source


def _described(channel: Channel, sources: Sequence[Source]) -> list[dict[str, Any]]:
    counted = channel.graph.states([source.source_id for source in sources])
    states = (State.PUBLISHED, State.FAILED, State.PENDING)
    return [
        told_of_source(source)
        | {state.value: counted[source.source_id].get(state, 0) for state in states}
        for source in sources
    ]
