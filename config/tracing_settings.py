"""Settings of traces."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from config.secrets import strip_password
from config.settings_group import SettingsGroup, is_http_address


class TracingSettings(SettingsGroup):
    """Traces, sent to an OpenTelemetry collector over OTLP (HTTP, protobuf). Without `endpoint`
    none are made. They need the packages of `skillbus[tracing]`.

    Spans hold ids, names of stages, durations and counts, no text of tasks or skills. Variables
    `OTEL_…` do not replace these settings.
    """

    endpoint: str = Field(
        "",
        description="address that `/v1/traces` is appended to, such as `http://127.0.0.1:4318`; "
        "empty: no traces",
    )
    headers_file: Path | None = Field(
        None, description="file with headers of every export, such as a key: `name: value` lines"
    )
    ca_file: Path | None = Field(None, description="CA certificates for an https address")
    service_name: str = Field("skillbus", min_length=1, description="`service.name` of all spans")
    sample_ratio: float = Field(1.0, ge=0, le=1, description="share of the traces that is kept")
    trust_callers: bool = Field(
        False,
        description="keep each trace that its caller keeps, regardless of `sample_ratio`",
    )
    queue_spans: int = Field(
        8_192, ge=512, description="spans of a process that wait for export; others are dropped"
    )
    export_milliseconds: int = Field(
        2_000, ge=100, description="pause between two exports; shorter when many spans wait"
    )
    timeout_seconds: float = Field(
        10.0, gt=0, description="time limit of one export with its retries"
    )
    stop_seconds: float = Field(
        2.0, ge=0, description="how long a process that ends waits for its last export"
    )

    @model_validator(mode="after")
    def _check_endpoint(self) -> TracingSettings:
        if self.endpoint and not is_http_address(self.endpoint):
            raise ValueError(f"endpoint {strip_password(self.endpoint)!r}: write http://HOST:PORT")
        parts = urlsplit(self.endpoint)
        if parts.username or parts.password:
            raise ValueError("endpoint: put credentials into the file that headers_file names")
        if parts.query or parts.fragment:
            raise ValueError("endpoint: leave out what follows the path")
        return self
