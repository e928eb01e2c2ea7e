"""Sources: where skills come from."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from config.errors import NotFoundError
from graph.protocol import State
from skills.events import SourceChanged, SourceRemoved
from skills.events.requests import SourceId
from workers.channel import Channel
from workers.gateway.door import Asking, needs
from workers.gateway.idempotency import IdempotencyKey, accept
from workers.gateway.queries import Accepted
from workers.gateway.roots import check_root
from workers.gateway.tokens import Scope


class SourceData(BaseModel):
    """A source. last_success: seconds since the epoch when it was last read whole, 0: never."""

    model_config = ConfigDict(frozen=True)

    source_id: str
    kind: str
    root: str
    last_success: float
    published: int
    failed: int


class Sources(BaseModel):
    """All sources, by id."""

    model_config = ConfigDict(frozen=True)

    sources: list[SourceData]


class NewSource(BaseModel):
    """A directory on the machine that serves."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_id: SourceId
    root: str = Field(
        min_length=1,
        max_length=4096,
        pattern=r"^/[^\x00]*$",
        description="a directory below one of `gateway.roots`; on the home's socket, any",
    )


def source_routes(channel: Channel) -> APIRouter:
    """The routes of sources over an open channel."""
    router = APIRouter(tags=["sources"])

    @router.get("/v1/sources")
    def list_sources() -> Sources:
        """All sources, with how many of their skills are published and how many failed."""
        return Sources(
            sources=[_described(channel, one.source_id) for one in channel.graph.sources()]
        )

    @router.post("/v1/sources", status_code=202, dependencies=[needs(Scope.WRITE)])
    def add_source(
        source: NewSource, response: Response, caller: Asking, key: IdempotencyKey = None
    ) -> Accepted:
        """Read a directory as a source, now and whenever it changes."""
        root = check_root(channel, caller, source.source_id, source.root)
        changed = SourceChanged(source_id=source.source_id, root=root)
        event_id = accept(channel, caller, changed, key)
        response.headers["Location"] = f"/v1/events/{event_id}"
        return Accepted(id=event_id)

    @router.get("/v1/sources/{source_id:path}")
    def show_source(source_id: str) -> SourceData:
        """One source."""
        return _described(channel, source_id)

    @router.delete(
        "/v1/sources/{source_id:path}", status_code=202, dependencies=[needs(Scope.WRITE)]
    )
    def remove_source(
        source_id: str, response: Response, caller: Asking, key: IdempotencyKey = None
    ) -> Accepted:
        """Forget a source and withdraw all its skills; no file is touched."""
        _described(channel, source_id)
        event_id = accept(channel, caller, SourceRemoved(source_id=source_id), key)
        response.headers["Location"] = f"/v1/events/{event_id}"
        return Accepted(id=event_id)

    return router


def _described(channel: Channel, source_id: str) -> SourceData:
    found = next((one for one in channel.graph.sources() if one.source_id == source_id), None)
    if found is None:
        raise NotFoundError(f"no source {source_id!r}")
    entries = channel.graph.entries_under(source_id, "")
    return SourceData(
        source_id=found.source_id,
        kind=found.kind,
        root=found.root,
        last_success=found.last_success,
        published=sum(entry.state is State.PUBLISHED for entry in entries),
        failed=sum(entry.state is State.FAILED for entry in entries),
    )
