"""Skills that come by value over HTTP: received, unpacked within bounds, and accepted."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from config.errors import PermanentError, TransientError
from config.settings import Settings
from skills.events import Event, SourceChanged, with_origin
from tasks.sources.uploads.bounds import CHUNK, MEGABYTE, TooLargeError
from tasks.sources.uploads.intake import check_kind, check_source_id, take_in, too_large
from tasks.sources.uploads.store import new_package_id, upload_store
from workers.backend.channel import Channel
from workers.http.access import Asking, Caller, needs
from workers.http.bodies import declared_length
from workers.http.idempotency import IdempotencyKey, job_of_key, other_request, sent_before
from workers.http.tokens import Scope

_FORM = "multipart/form-data"
_DIGEST, _LEFT_OUT = "uploaddigest", "leftout"
"""Extension attributes of the event of an upload."""
_KINDS: dict[str, tuple[str, ...]] = {
    "text/markdown": ("text",),
    "application/zip": ("zip",),
    "application/x-zip-compressed": ("zip",),
    "application/gzip": ("tar.gz",),
    "application/x-gzip": ("tar.gz",),
    "application/x-bzip2": ("tar.bz2",),
    "application/x-xz": ("tar.xz",),
    "application/x-tar": ("tar", "tar.gz", "tar.bz2", "tar.xz"),
    _FORM: (),
}
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_EXAMPLE = "---\nname: glaze-test\ndescription: Test a glaze on tiles\n---\n# Glaze\n\n1. Dip.\n"
_BODY: dict[str, Any] = {
    "required": True,
    "content": {kind: _BINARY for kind in _KINDS if kind != _FORM}
    | {"text/markdown": {"schema": {"type": "string"}, "example": _EXAMPLE}}
    | {
        _FORM: {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {"file": {"type": "string", "format": "binary"}},
            }
        }
    },
}


_SourceId = Annotated[
    str,
    Query(
        min_length=1,
        max_length=200,
        description="id of the source, made if new",
        examples=["pottery"],
    ),
]
_Folder = Annotated[
    str,
    Query(
        max_length=1_024,
        description="the folder's path in the source; needed where SKILL.md lies at the top; "
        "takes the place of an archive's one top folder",
        examples=["glaze-test"],
    ),
]


class Uploaded(BaseModel):
    """An upload that is on disk and will be worked on.

    id: of its event; skills: the ids that its skills have; left_out: files that belong to none.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    skills: list[str]
    left_out: int = Field(ge=0)


def upload_routes(channel: Channel) -> APIRouter:
    """The route that takes skills in by value, over an open channel."""
    router = APIRouter(tags=["skills"])
    room = threading.BoundedSemaphore(channel.settings.uploads.at_once)

    @router.post(
        "/v1/skills",
        status_code=202,
        dependencies=[needs(Scope.WRITE)],
        openapi_extra={"requestBody": _BODY},
    )
    async def upload(
        request: Request,
        response: Response,
        caller: Asking,
        source: _SourceId,
        path: _Folder = "",
        key: IdempotencyKey = None,
    ) -> Uploaded:
        """Take in a SKILL.md, or a zip or tar of one skill or several; replaces those there are."""
        wanted = _wanted(request)
        check_source_id(source)
        # What cannot be accepted afterwards would lie about until it is swept.
        await run_in_threadpool(channel.check_room, "event")
        if not room.acquire(blocking=False):
            most = channel.settings.uploads.at_once
            raise TransientError(f"{most} uploads are taken in already (uploads.at_once)")
        try:
            async with _received(request, channel.settings) as place:
                sent = _Sent(place, source, path, wanted, caller, key)
                uploaded = await run_in_threadpool(_accepted, channel, sent)
        except TooLargeError as error:
            raise HTTPException(413, str(error)) from None
        finally:
            room.release()
        response.headers["Location"] = f"/v1/events/{uploaded.id}"
        return uploaded

    return router


@dataclass(frozen=True, slots=True)
class _Sent:
    """An upload as it was received: the file `body` in a staging folder, and what was said of
    it."""

    place: Path
    source: str
    path: str
    wanted: tuple[str, ...]
    caller: Caller
    key: str | None

    def digest(self) -> str:
        """What tells one upload from another that comes under the same key."""
        with (self.place / "body").open("rb") as body:
            content = hashlib.file_digest(body, "sha256").hexdigest()
        return hashlib.sha256(f"{self.source}\0{self.path}\0{content}".encode()).hexdigest()


def _accepted(channel: Channel, sent: _Sent) -> Uploaded:
    """Take an upload in, and accept its event: both are on disk when this returns.

    What came before under the same key is left as it is. The event remembers of the upload what
    has to be told again.
    """
    check_kind(channel.graph.sources(), sent.source)
    if sent.key is None:
        return _told(_handed_in(channel, sent, "", {}))
    package_id = new_package_id(job_of_key(sent.caller, sent.key))
    digest = sent.digest()
    event = sent_before(channel, package_id)
    if event is None:
        event = _handed_in(channel, sent, package_id, {_DIGEST: digest})
    if (event.model_extra or {}).get(_DIGEST) != digest:
        raise other_request()
    return _told(event)


def _handed_in(channel: Channel, sent: _Sent, package_id: str, told: dict[str, str]) -> Event:
    settings, place = channel.settings, sent.place
    taken = take_in(
        settings,
        upload_store(settings),
        place,
        place / "body",
        sent.source,
        sent.path,
        sent.wanted,
        package_id,
    )
    event = with_origin(taken.event, sent.caller.name)
    event = event.model_copy(update={**told, _LEFT_OUT: taken.left_out})
    channel.accept(event)
    return event


def _told(event: Event) -> Uploaded:
    content = event.content()
    if not isinstance(content, SourceChanged):
        raise PermanentError(f"{event.id} is no upload")
    return Uploaded(
        id=event.id,
        skills=[f"{content.source_id}:{path}" for path in content.paths],
        left_out=int((event.model_extra or {}).get(_LEFT_OUT, 0)),
    )


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _wanted(request: Request) -> tuple[str, ...]:
    wanted = _KINDS.get(_media_type(request))
    if wanted is None:
        raise HTTPException(415, f"send it as one of {', '.join(_KINDS)}")
    return wanted


@asynccontextmanager
async def _received(request: Request, settings: Settings) -> AsyncGenerator[Path, None]:
    """A staging folder with the upload as `body`, within its size and its time."""
    seconds = settings.uploads.seconds
    with upload_store(settings).staging() as place:
        try:
            async with asyncio.timeout(seconds):
                await _receive(request, settings, place / "body")
        except TimeoutError:
            raise HTTPException(
                408, f"not all there after {seconds:g} s (uploads.seconds)"
            ) from None
        except ClientDisconnect:
            raise HTTPException(400, "the connection ended before the upload did") from None
        except OSError as error:
            raise TransientError(f"{place} cannot be written: {error.strerror}") from error
        yield place


async def _receive(request: Request, settings: Settings, body: Path) -> None:
    chunks = _bounded(request, settings)
    if _media_type(request) == _FORM:
        form = await _form(request, chunks)
        try:
            files = [one for _, one in form.multi_items() if isinstance(one, UploadFile)]
            if not files:
                raise HTTPException(400, "the form holds no file; name it `file`")
            await run_in_threadpool(_copy, files[0], body)
        finally:
            await form.close()
        return
    with body.open("xb") as file:
        async for chunk in chunks:
            await run_in_threadpool(file.write, chunk)


async def _form(request: Request, chunks: AsyncGenerator[bytes, None]) -> FormData:
    try:
        return await MultiPartParser(request.headers, chunks, max_files=1, max_fields=4).parse()
    except MultiPartException as error:
        raise HTTPException(400, f"not a form with one file: {error.message}") from None
    except UnicodeError:
        raise HTTPException(400, "not a form with one file: a name in it is no text") from None


def _copy(upload: UploadFile, body: Path) -> None:
    with body.open("xb") as file:
        shutil.copyfileobj(upload.file, file, CHUNK)


async def _bounded(request: Request, settings: Settings) -> AsyncGenerator[bytes, None]:
    most = settings.uploads.megabytes * MEGABYTE
    if declared_length(request.headers) > most:
        raise too_large(settings)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise too_large(settings)
        if chunk:
            yield chunk
