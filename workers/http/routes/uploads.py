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
from skills.events import Event, SourceChanged, replace_origin
from tasks.sources.uploads.limits import CHUNK, MEGABYTE, UploadTooLargeError
from tasks.sources.uploads.staging import (
    check_source_id,
    check_source_kind,
    stage_upload,
    upload_too_large,
)
from tasks.sources.uploads.store import new_package_id, open_upload_store
from workers.backend.store_backend import StoreBackend
from workers.http.access import Caller, CurrentCaller, require_scope
from workers.http.idempotency import (
    IdempotencyKey,
    derive_job_id,
    find_earlier_event,
    key_reuse_error,
)
from workers.http.request_bodies import parse_content_length
from workers.http.tokens import TokenScope

_FORM = "multipart/form-data"
_DIGEST, _LEFT_OUT = "uploaddigest", "leftout"
"""Extension attributes of the event of an upload."""
_ARCHIVE_KINDS: dict[str, tuple[str, ...]] = {
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
    "content": {kind: _BINARY for kind in _ARCHIVE_KINDS if kind != _FORM}
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
_FolderPath = Annotated[
    str,
    Query(
        max_length=1_024,
        description="the folder's path in the source; needed where SKILL.md lies at the top; "
        "takes the place of an archive's one top folder",
        examples=["glaze-test"],
    ),
]


class UploadAccepted(BaseModel):
    """An upload that is on disk and will be worked on.

    id: of its event; skills: the ids that its skills have; left_out: files that belong to none.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    skills: list[str]
    left_out: int = Field(ge=0)


def upload_routes(backend: StoreBackend) -> APIRouter:
    """The route that takes skills in by value, over an open channel."""
    router = APIRouter(tags=["skills"])
    slots = threading.BoundedSemaphore(backend.settings.uploads.at_once)

    @router.post(
        "/v1/skills",
        status_code=202,
        dependencies=[require_scope(TokenScope.WRITE)],
        openapi_extra={"requestBody": _BODY},
    )
    async def upload(
        request: Request,
        response: Response,
        caller: CurrentCaller,
        source: _SourceId,
        path: _FolderPath = "",
        key: IdempotencyKey = None,
    ) -> UploadAccepted:
        """Take in a SKILL.md, or a zip or tar of one skill or several; replaces those there are."""
        archive_kinds = _get_archive_kinds(request)
        check_source_id(source)
        # What cannot be accepted afterwards would lie about until it is swept.
        await run_in_threadpool(backend.check_capacity, "event")
        if not slots.acquire(blocking=False):
            most = backend.settings.uploads.at_once
            raise TransientError(f"{most} uploads are taken in already (uploads.at_once)")
        try:
            async with _receive_to_staging(request, backend.settings) as staging_folder:
                upload_data = _Upload(staging_folder, source, path, archive_kinds, caller, key)
                uploaded = await run_in_threadpool(_accept_upload, backend, upload_data)
        except UploadTooLargeError as error:
            raise HTTPException(413, str(error)) from None
        finally:
            slots.release()
        response.headers["Location"] = f"/v1/events/{uploaded.id}"
        return uploaded

    return router


@dataclass(frozen=True, slots=True)
class _Upload:
    """An upload as it was received: the file `body` in a staging folder, and what was said of
    it."""

    staging_folder: Path
    source: str
    path: str
    archive_kinds: tuple[str, ...]
    caller: Caller
    key: str | None

    def digest(self) -> str:
        """What tells one upload from another that comes under the same key."""
        with (self.staging_folder / "body").open("rb") as body:
            content = hashlib.file_digest(body, "sha256").hexdigest()
        return hashlib.sha256(f"{self.source}\0{self.path}\0{content}".encode()).hexdigest()


def _accept_upload(backend: StoreBackend, upload_data: _Upload) -> UploadAccepted:
    """Take an upload in, and accept its event: both are on disk when this returns.

    What came before under the same key is left as it is. The event remembers of the upload what
    has to be told again.
    """
    check_source_kind(backend.graph.list_sources(), upload_data.source)
    if upload_data.key is None:
        return _build_receipt(_store_upload(backend, upload_data, "", {}))
    package_id = new_package_id(derive_job_id(upload_data.caller, upload_data.key))
    digest = upload_data.digest()
    event = find_earlier_event(backend, package_id)
    if event is None:
        event = _store_upload(backend, upload_data, package_id, {_DIGEST: digest})
    if (event.model_extra or {}).get(_DIGEST) != digest:
        raise key_reuse_error()
    return _build_receipt(event)


def _store_upload(
    backend: StoreBackend, upload_data: _Upload, package_id: str, attributes: dict[str, str]
) -> Event:
    settings, staging_folder = backend.settings, upload_data.staging_folder
    taken = stage_upload(
        settings,
        open_upload_store(settings),
        staging_folder,
        staging_folder / "body",
        upload_data.source,
        upload_data.path,
        upload_data.archive_kinds,
        package_id,
    )
    event = replace_origin(taken.event, upload_data.caller.name)
    event = event.model_copy(update={**attributes, _LEFT_OUT: taken.left_out})
    backend.accept(event)
    return event


def _build_receipt(event: Event) -> UploadAccepted:
    content = event.parse_data()
    if not isinstance(content, SourceChanged):
        raise PermanentError(f"{event.id} is no upload")
    return UploadAccepted(
        id=event.id,
        skills=[f"{content.source_id}:{path}" for path in content.paths],
        left_out=int((event.model_extra or {}).get(_LEFT_OUT, 0)),
    )


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _get_archive_kinds(request: Request) -> tuple[str, ...]:
    archive_kinds = _ARCHIVE_KINDS.get(_media_type(request))
    if archive_kinds is None:
        raise HTTPException(415, f"send it as one of {', '.join(_ARCHIVE_KINDS)}")
    return archive_kinds


@asynccontextmanager
async def _receive_to_staging(request: Request, settings: Settings) -> AsyncGenerator[Path, None]:
    """A staging folder with the upload as `body`, within its size and its time."""
    seconds = settings.uploads.seconds
    with open_upload_store(settings).staging() as staging_folder:
        try:
            async with asyncio.timeout(seconds):
                await _write_body(request, settings, staging_folder / "body")
        except TimeoutError:
            raise HTTPException(
                408, f"not all there after {seconds:g} s (uploads.seconds)"
            ) from None
        except ClientDisconnect:
            raise HTTPException(400, "the connection ended before the upload did") from None
        except OSError as error:
            raise TransientError(f"{staging_folder} cannot be written: {error.strerror}") from error
        yield staging_folder


async def _write_body(request: Request, settings: Settings, body: Path) -> None:
    chunks = _read_bounded(request, settings)
    if _media_type(request) == _FORM:
        form = await _parse_form(request, chunks)
        try:
            files = [one for _, one in form.multi_items() if isinstance(one, UploadFile)]
            if not files:
                raise HTTPException(400, "the form holds no file; name it `file`")
            await run_in_threadpool(_copy_file, files[0], body)
        finally:
            await form.close()
        return
    with body.open("xb") as file:
        async for chunk in chunks:
            await run_in_threadpool(file.write, chunk)


async def _parse_form(request: Request, chunks: AsyncGenerator[bytes, None]) -> FormData:
    try:
        return await MultiPartParser(request.headers, chunks, max_files=1, max_fields=4).parse()
    except MultiPartException as error:
        raise HTTPException(400, f"not a form with one file: {error.message}") from None
    except UnicodeError:
        raise HTTPException(400, "not a form with one file: a name in it is no text") from None


def _copy_file(upload: UploadFile, body: Path) -> None:
    with body.open("xb") as file:
        shutil.copyfileobj(upload.file, file, CHUNK)


async def _read_bounded(request: Request, settings: Settings) -> AsyncGenerator[bytes, None]:
    most = settings.uploads.megabytes * MEGABYTE
    if parse_content_length(request.headers) > most:
        raise upload_too_large(settings)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise upload_too_large(settings)
        if chunk:
            yield chunk
