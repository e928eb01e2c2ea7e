"""Skills that come by value over HTTP: received, unpacked within bounds, and accepted."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from config.errors import TransientError
from config.settings import Settings
from skills.events import with_origin
from tasks.uploads.bounds import CHUNK, MEGABYTE, TooLargeError
from tasks.uploads.intake import Upload, check_kind, check_source, take_in, too_large
from tasks.uploads.store import upload_store
from workers.channel import Channel
from workers.gateway.door import Asking, needs
from workers.gateway.tokens import Scope

_FORM = "multipart/form-data"
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
_BODY: dict[str, Any] = {
    "required": True,
    "content": {kind: _BINARY for kind in _KINDS if kind != _FORM}
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
        source: Annotated[
            str, Query(min_length=1, max_length=200, description="id of the source, made if new")
        ],
        path: Annotated[
            str,
            Query(
                max_length=1_024,
                description="the folder's path in the source; needed where SKILL.md lies at the "
                "top; takes the place of an archive's one top folder",
            ),
        ] = "",
    ) -> Uploaded:
        """Take in a SKILL.md, or a zip or tar of one skill or several; replaces those there are."""
        wanted = _wanted(request)
        check_source(source)
        # What cannot be accepted afterwards would lie about until it is swept.
        await run_in_threadpool(channel.check_room, "event")
        if not room.acquire(blocking=False):
            most = channel.settings.uploads.at_once
            raise TransientError(f"{most} uploads are taken in already (uploads.at_once)")
        try:
            async with _received(request, channel.settings) as place:
                taken = await run_in_threadpool(_taken, channel, place, source, path, wanted)
        except TooLargeError as error:
            raise HTTPException(413, str(error)) from None
        finally:
            room.release()
        event = with_origin(taken.event, caller.name)
        await run_in_threadpool(channel.accept, event)
        response.headers["Location"] = f"/v1/events/{event.id}"
        return Uploaded(id=event.id, skills=list(taken.skill_ids), left_out=taken.left_out)

    return router


def _taken(
    channel: Channel, place: Path, source: str, path: str, wanted: tuple[str, ...]
) -> Upload:
    check_kind(channel.graph.sources(), source)
    store = upload_store(channel.settings)
    return take_in(channel.settings, store, place, place / "body", source, path, wanted)


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
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise HTTPException(400, "content-length: not a number")
    if len(length) > 12 or int(length) > most:
        raise too_large(settings)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise too_large(settings)
        if chunk:
            yield chunk
