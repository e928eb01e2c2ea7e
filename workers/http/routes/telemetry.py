"""OpenTelemetry of agents: log records sent by OTLP/HTTP in JSON."""

from __future__ import annotations

import zlib
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from config.errors import UsageError
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import Caller, CurrentCaller
from workers.http.dependencies import CurrentBackend
from workers.telemetry.otlp_logs import read_logs
from workers.telemetry.skill_activations import ActivationReporter, describe_ignored

_JSON = "application/json"
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"resourceLogs": {"type": "array", "items": {"type": "object"}}},
}
_GZIP_WINDOW = 31
"""`wbits` of zlib for data with the header of gzip."""


class PartialSuccess(BaseModel):
    """Records that were ignored. rejectedLogRecords: a number as text, as OTLP has it."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    rejected: str = Field(alias="rejectedLogRecords")
    message: str = Field(alias="errorMessage")


class LogsAccepted(BaseModel):
    """`ExportLogsServiceResponse` of OTLP."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    partial: PartialSuccess | None = Field(None, alias="partialSuccess")


router = APIRouter(tags=["telemetry"])


@router.post(
    "/v1/otlp/logs",
    response_model_exclude_none=True,
    openapi_extra={"requestBody": {"required": True, "content": {_JSON: {"schema": _SCHEMA}}}},
)
async def export_logs(
    backend: CurrentBackend,
    caller: CurrentCaller,
    request: Request,
    content_type: Annotated[str, Header(include_in_schema=False)] = "",
    content_encoding: Annotated[str, Header(include_in_schema=False)] = "identity",
) -> LogsAccepted:
    """Accept OTLP log records: an event `skill_activated` of a session, or query, of the caller
    is an outcome `used`; all others are ignored, and counted in `partialSuccess`."""
    if content_type.partition(";")[0].strip().lower() != _JSON:
        raise HTTPException(
            415, "only JSON is accepted: set OTEL_EXPORTER_OTLP_LOGS_PROTOCOL=http/json"
        )
    limit = backend.settings.gateway.body_bytes
    body = _decode_body(await request.body(), content_encoding.strip().lower(), limit)
    return await run_in_threadpool(_report, backend, caller, body)


def _decode_body(body: bytes, encoding: str, limit: int) -> bytes:
    """Return the body without its content encoding, of at most `limit` bytes."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise HTTPException(415, "content-encoding: send gzip or nothing")
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        decoded = stream.decompress(body, limit + 1)
    except zlib.error:
        raise UsageError("the body is not gzip, as content-encoding says") from None
    if len(decoded) > limit:
        raise HTTPException(413, f"more than {limit} bytes (gateway.body_bytes)")
    if not stream.eof:
        raise UsageError("the body is cut off: the gzip stream has no end")
    if stream.unused_data:
        raise UsageError("the body goes on after the gzip stream; send one gzip stream")
    return decoded


def _report(backend: StoreBackend, caller: Caller, body: bytes) -> LogsAccepted:
    found = read_logs(body)
    ignored = found.ignored + ActivationReporter(backend, caller.name, caller.reader).report(
        found.activations
    )
    if not ignored:
        return LogsAccepted(partial=None)
    return LogsAccepted(
        partial=PartialSuccess(
            rejected=str(ignored.total()), message="ignored: " + describe_ignored(ignored)
        )
    )
