"""Sources of skills: directories and git repositories, added, refreshed and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Self
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, Field, ValidationError, model_validator
from starlette.exceptions import HTTPException

from config.errors import MisconfiguredError, NotFoundError, UsageError
from graph.records import SkillState, Source
from skills.access import MAX_GROUPS, GroupName, parse_groups
from skills.events import GitFetchOptions, SourceChanged, SourceRemoved, describe_validation_error
from skills.events.ids import SourceId
from tasks.sources.git.mirror import check_git_source
from tasks.sources.readers import find_source
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import (
    LOCAL_USER,
    NEEDS_ADMIN,
    NEEDS_WRITE,
    Caller,
    CurrentCaller,
    check_scope,
    check_source,
)
from workers.http.dependencies import CurrentBackend
from workers.http.jobs import Accepted, IdempotencyKey, accept_event, check_key
from workers.http.models import RequestModel, ResponseModel
from workers.http.source_roots import resolve_root
from workers.http.tokens import TokenScope
from workers.monitoring.status import source_status

_GIT = frozenset(GitFetchOptions.model_fields)


class SourceData(ResponseModel):
    """A source and its state.

    kind: `directory`, `git` or `upload`. last_success, last_attempt: time of a sync, seconds since
    the epoch, 0: never. lag_seconds: since the last success, null: never. published, failed,
    pending, held: number of skills; held ones wait for review and have no published revision.

    Only of a git source: branch, path and licences; poll_seconds, 0: as `git.poll_seconds`; commit:
    last synced; last_error: of the last attempt, "" if it succeeded.

    Only for admins: groups, empty if it has those of the settings.
    """

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
    held: int
    groups: list[str] | None = None


class SourceGroups(RequestModel):
    """The groups that see the skills of a source."""

    groups: list[GroupName] = Field(max_length=MAX_GROUPS)


class SourceList(ResponseModel):
    """All sources, by id."""

    sources: list[SourceData]


class NewSource(GitFetchOptions):
    """A directory on the gateway's machine (`root` and `source_id`), or a git repository (`url`;
    `source_id` is by default the repository's name)."""

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
        description="a directory below one of `gateway.roots`; on the home's socket, any directory",
    )
    url: str = Field(
        "", max_length=4096, description="of a git repository, without a password; admins only"
    )
    groups: list[GroupName] | None = Field(
        None,
        max_length=MAX_GROUPS,
        description="groups that see its skills, set before it is synced; admins only",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.root) == bool(self.url):
            raise ValueError("give either the root of a directory or the url of a repository")
        if self.root and self.source_id is None:
            raise ValueError("a directory needs a source_id")
        if self.root and self.model_fields_set & _GIT:
            given = ", ".join(sorted(self.model_fields_set & _GIT))
            raise ValueError(f"{given}: only for git repositories")
        return self


class AcceptedSource(Accepted):
    """An event that is recorded and will be processed, and the id of its source."""

    source_id: str


router = APIRouter(tags=["sources"])


# Added first, as the id in the other routes would match the rest of this path.
@router.put(
    "/v1/sources/{source_id:path}/groups", response_model=SourceGroups, dependencies=NEEDS_ADMIN
)
def set_source_groups(
    backend: CurrentBackend, source_id: SourceId, body: SourceGroups, request: Request
) -> SourceGroups:
    """Set the groups that see the skills of a source, which may be added later; an empty list
    stands for those of the settings."""
    note_object(request, f"{source_id} {' '.join(body.groups)}".strip())
    groups = list(parse_groups(body.groups))
    backend.set_source_groups(source_id, groups)
    return SourceGroups(groups=groups)


@router.get("/v1/sources", response_model=SourceList, response_model_exclude_unset=True)
def list_sources(backend: CurrentBackend, caller: CurrentCaller) -> Mapping[str, Any]:
    """List the sources, with their state and number of skills."""
    visible = backend.graph_for(caller.reader).list_sources()
    return {"sources": _describe_sources(backend, caller, visible)}


@router.post("/v1/sources", status_code=202, dependencies=NEEDS_WRITE)
def add_source(
    backend: CurrentBackend,
    caller: CurrentCaller,
    source: NewSource,
    request: Request,
    response: Response,
    key: IdempotencyKey = None,
) -> AcceptedSource:
    """Add a directory, or as an admin a git repository, or change its options. The source is
    synced now and whenever it changes."""
    note_object(request, f"{source.source_id or ''} {source.url or source.root}".strip())
    if source.groups is not None:
        check_scope(caller, TokenScope.ADMIN)
    if source.source_id is not None:
        backend.check_visible(caller.reader, source.source_id)
    create_event = _repository_event if source.url else _directory_event
    changed = create_event(backend, caller, source)
    check_source(caller, changed.source_id)
    if source.groups is not None:
        check_key(backend, caller, changed, key)
        # Set first, so that readers outside these groups never see the source's skills.
        backend.set_source_groups(changed.source_id, source.groups)
    accepted = accept_event(backend, caller, changed, key, response)
    return AcceptedSource(id=accepted.id, source_id=changed.source_id)


@router.post("/v1/sources/{source_id:path}", status_code=202, dependencies=NEEDS_WRITE)
def refresh_source(
    backend: CurrentBackend,
    caller: CurrentCaller,
    source_id: str,
    response: Response,
    key: IdempotencyKey = None,
) -> Accepted:
    """Sync a source now: fetch the repository, or scan the directory."""
    check_source(caller, source_id)
    _find_source(backend, caller, source_id)
    return accept_event(backend, caller, SourceChanged(source_id=source_id), key, response)


@router.get(
    "/v1/sources/{source_id:path}", response_model=SourceData, response_model_exclude_unset=True
)
def get_source(backend: CurrentBackend, caller: CurrentCaller, source_id: str) -> Mapping[str, Any]:
    """Show a source."""
    found = _find_source(backend, caller, source_id)
    return _describe_sources(backend, caller, [found])[0]


@router.delete("/v1/sources/{source_id:path}", status_code=202, dependencies=NEEDS_WRITE)
def remove_source(
    backend: CurrentBackend,
    caller: CurrentCaller,
    source_id: str,
    response: Response,
    key: IdempotencyKey = None,
) -> Accepted:
    """Remove a source and all its skills. Directories and repositories are not touched; the
    files of uploaded skills are deleted."""
    check_source(caller, source_id)
    _find_source(backend, caller, source_id)
    return accept_event(backend, caller, SourceRemoved(source_id=source_id), key, response)


def _directory_event(backend: StoreBackend, caller: Caller, new_source: NewSource) -> SourceChanged:
    source_id = new_source.source_id or ""
    root = resolve_root(backend, caller, source_id, new_source.root)
    _check_id_is_free(backend, Source(source_id, "directory", root))
    return SourceChanged(source_id=source_id, root=root)


def _repository_event(
    backend: StoreBackend, caller: Caller, new_source: NewSource
) -> SourceChanged:
    """Return the event that adds a git repository, checked as by `skillbus sources add`.

    The host's address is checked when the repository is fetched, on the machine that fetches it.
    """
    check_scope(caller, TokenScope.ADMIN)
    _check_credential(backend, caller, new_source)
    values = {name: getattr(new_source, name) for name in _GIT}
    git = GitFetchOptions(**values | {"path": new_source.path.strip("/")})
    try:
        check_git_source(Source("", "git", new_source.url, **dict(git)), backend.settings)
    except MisconfiguredError as error:
        raise UsageError(str(error)) from None
    name = new_source.source_id or PurePosixPath(urlsplit(new_source.url).path).name.removesuffix(
        ".git"
    )
    try:
        changed = SourceChanged(source_id=name, root=new_source.url, git=git)
    except ValidationError as error:
        raise HTTPException(
            422, f"{describe_validation_error(error)}; name it by source_id"
        ) from None
    _check_id_is_free(backend, Source(name, "git", new_source.url))
    return changed


def _check_credential(backend: StoreBackend, caller: Caller, new_source: NewSource) -> None:
    """Raise UsageError if a token names a credential file for a repository that has not used it.

    Otherwise the holder of an admin token could have a credential sent to a host of their choice.
    """
    if not new_source.credential_file or caller is LOCAL_USER:
        return
    named = (new_source.url, new_source.credential_file)
    if named not in {(one.root, one.credential_file) for one in backend.graph.list_sources()}:
        raise UsageError(
            "credential_file: a credential is first assigned to a repository by "
            "`skillbus sources add URL --credential-file FILE` where the gateway runs"
        )


def _check_id_is_free(backend: StoreBackend, source: Source) -> None:
    """Raise UsageError if another source has the id."""
    known = find_source(backend.graph.list_sources(), source.source_id)
    if known is not None and (known.kind, known.root) != (source.kind, source.root):
        raise UsageError(
            f"source {known.source_id} is already {known.kind} {known.root}: choose another id, or "
            "remove that source first"
        )


def _find_source(backend: StoreBackend, caller: Caller, source_id: str) -> Source:
    source = find_source(backend.graph_for(caller.reader).list_sources(), source_id)
    if source is None:
        raise NotFoundError(f"no source {source_id!r}")
    return source


def _describe_sources(
    backend: StoreBackend, caller: Caller, sources: Sequence[Source]
) -> list[dict[str, Any]]:
    counted = backend.graph.count_states_by_source([source.source_id for source in sources])
    states = (SkillState.PUBLISHED, SkillState.FAILED, SkillState.PENDING, SkillState.HELD)
    rows = [
        source_status(source)
        | {state.value: counted[source.source_id].get(state, 0) for state in states}
        for source in sources
    ]
    if caller.is_admin:
        groups = backend.graph.read_access().groups
        for row in rows:
            row["groups"] = list(groups.get(row["source_id"], ()))
    return rows
