"""Uploads of skills: received in a staging folder, unpacked within limits, and accepted."""

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
from pydantic import Field
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

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
from workers.http.authentication import NEEDS_WRITE, Caller, CurrentCaller, check_source
from workers.http.dependencies import CurrentBackend, from_state
from workers.http.jobs import (
    IdempotencyKey,
    derive_job_id,
    find_earlier_event,
    key_reuse_error,
)
from workers.http.limits.request_bodies import parse_content_length
from workers.http.models import ResponseModel

_FORM = "multipart/form-data"
_DIGEST, _LEFT_OUT = "uploaddigest", "leftout"
"""Extension attributes of an upload's event."""
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
        description="id of the source, which is created if it is new",
        examples=["pottery"],
    ),
]
_FolderPath = Annotated[
    str,
    Query(
        max_length=1_024,
        description="path of the folder in the source; required if SKILL.md is at the top level; "
        "replaces the single top folder of an archive",
        examples=["glaze-test"],
    ),
]


class UploadAccepted(ResponseModel):
    """An upload that is stored and will be processed.

    id: of its event. skills: ids of its skills. left_out: number of files that belong to no skill.
    """

    id: str
    skills: list[str]
    left_out: int = Field(ge=0)


CurrentSlots = Annotated[threading.BoundedSemaphore, from_state("upload_slots")]

router = APIRouter(tags=["skills"])


@router.post(
    "/v1/skills",
    status_code=202,
    dependencies=NEEDS_WRITE,
    openapi_extra={"requestBody": _BODY},
)
async def upload(
    backend: CurrentBackend,
    slots: CurrentSlots,
    caller: CurrentCaller,
    request: Request,
    response: Response,
    source: _SourceId,
    path: _FolderPath = "",
    key: IdempotencyKey = None,
) -> UploadAccepted:
    """Upload a SKILL.md, or a zip or tar of one or more skills; replaces existing ones."""
    archive_kinds = _get_archive_kinds(request)
    check_source_id(source)
    check_source(caller, source)
    await run_in_threadpool(backend.check_visible, caller.reader, source)
    # Checked first: a stored upload that is not accepted would lie there until its deletion.
    await run_in_threadpool(backend.check_capacity, "event")
    if not slots.acquire(blocking=False):
        limit = backend.settings.uploads.at_once
        raise TransientError(f"{limit} uploads are in progress already (uploads.at_once)")
    try:
        async with _receive_to_staging(request, backend.settings) as staging_folder:
            received = _Upload(staging_folder, source, path, archive_kinds, caller, key)
            uploaded = await run_in_threadpool(_accept_upload, backend, received)
    except UploadTooLargeError as error:
        raise HTTPException(413, str(error)) from None
    finally:
        slots.release()
    response.headers["Location"] = f"/v1/events/{uploaded.id}"
    return uploaded


@dataclass(frozen=True, slots=True)
class _Upload:
    """A received upload: the file `body` in a staging folder, and the request's parameters."""

    staging_folder: Path
    source: str
    path: str
    archive_kinds: tuple[str, ...]
    caller: Caller
    key: str | None

    def digest(self) -> str:
        """Return the hash that distinguishes uploads of the same idempotency key."""
        with (self.staging_folder / "body").open("rb") as body:
            content = hashlib.file_digest(body, "sha256").hexdigest()
        return hashlib.sha256(f"{self.source}\0{self.path}\0{content}".encode()).hexdigest()


def _accept_upload(backend: StoreBackend, received: _Upload) -> UploadAccepted:
    """Store an upload and record its event.

    An earlier upload of the same key is left unchanged; the attributes of its event suffice to
    build its receipt again.
    """
    check_source_kind(backend.graph.list_sources(), received.source)
    if received.key is None:
        return _build_receipt(_store_upload(backend, received, "", {}))
    package_id = new_package_id(derive_job_id(received.caller, received.key))
    digest = received.digest()
    event = find_earlier_event(backend, package_id)
    if event is None:
        event = _store_upload(backend, received, package_id, {_DIGEST: digest})
    if (event.model_extra or {}).get(_DIGEST) != digest:
        raise key_reuse_error()
    return _build_receipt(event)


def _store_upload(
    backend: StoreBackend, received: _Upload, package_id: str, attributes: dict[str, str]
) -> Event:
    settings, staging_folder = backend.settings, received.staging_folder
    staged = stage_upload(
        settings,
        open_upload_store(settings),
        staging_folder,
        staging_folder / "body",
        received.source,
        received.path,
        received.archive_kinds,
        package_id,
    )
    event = replace_origin(staged.event, received.caller.name, received.caller.reader)
    event = event.model_copy(update={**attributes, _LEFT_OUT: staged.left_out})
    backend.accept(event)
    return event


def _build_receipt(event: Event) -> UploadAccepted:
    content = event.parse_data()
    if not isinstance(content, SourceChanged):
        raise PermanentError(f"{event.id} is not an upload")
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
        raise HTTPException(415, f"content type: send one of {', '.join(_ARCHIVE_KINDS)}")
    return archive_kinds


@asynccontextmanager
async def _receive_to_staging(request: Request, settings: Settings) -> AsyncGenerator[Path, None]:
    """Yield a staging folder with the upload in the file `body`, of bounded size and duration."""
    seconds = settings.uploads.seconds
    with open_upload_store(settings).staging() as staging_folder:
        try:
            async with asyncio.timeout(seconds):
                await _write_body(request, settings, staging_folder / "body")
        except TimeoutError:
            raise HTTPException(
                408, f"the upload is incomplete after {seconds:g} s (uploads.seconds)"
            ) from None
        except OSError as error:
            raise TransientError(
                f"{staging_folder} cannot be written: {error.strerror}",
                public_message="the upload cannot be stored",
            ) from error
        yield staging_folder


async def _write_body(request: Request, settings: Settings, body: Path) -> None:
    chunks = _read_bounded(request, settings)
    if _media_type(request) == _FORM:
        form = await _parse_form(request, chunks)
        try:
            files = [one for _, one in form.multi_items() if isinstance(one, UploadFile)]
            if not files:
                raise HTTPException(400, "the form has no file in the field `file`")
            await run_in_threadpool(_copy_file, files[0], body)
        finally:
            await form.close()
        return
    with body.open("xb") as file:
        async for chunk in chunks:
            await run_in_threadpool(file.write, chunk)


async def _parse_form(request: Request, chunks: AsyncGenerator[bytes, None]) -> FormData:
    _, options = parse_options_header(request.headers["content-type"])
    if options.get(b"charset", b"utf-8").lower() != b"utf-8":
        # To decode others can take time that grows with the square of the text.
        raise HTTPException(415, "content type: a form is sent in UTF-8; leave `charset` out")
    try:
        return await MultiPartParser(request.headers, chunks, max_files=1, max_fields=4).parse()
    except MultiPartException as error:
        raise HTTPException(400, f"not a form with one file: {error.message}") from None


def _copy_file(upload: UploadFile, body: Path) -> None:
    with body.open("xb") as file:
        shutil.copyfileobj(upload.file, file, CHUNK)


async def _read_bounded(request: Request, settings: Settings) -> AsyncGenerator[bytes, None]:
    max_bytes = settings.uploads.megabytes * MEGABYTE
    if parse_content_length(request.headers) > max_bytes:
        raise upload_too_large(settings)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise upload_too_large(settings)
        if chunk:
            yield chunk
