"""Export of spans over OTLP in a separate thread, with counts of lost spans."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Sequence
from importlib.metadata import version

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from typing_extensions import override

from config.errors import MisconfiguredError
from config.secrets import read_secret
from config.tracing_settings import TracingSettings
from tasks.metrics_recorder import MetricsRecorder

log = structlog.get_logger()

_BATCH_SPANS = 512
_PATH = "/v1/traces"
_REPLACED_VARIABLES = (
    "OTEL_SDK_DISABLED",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
)
"""Variables that the SDK would read in addition to the settings; they are for other programs and
their collector."""


class SpanExport:
    """Provider of the spans of a process, and their export.

    Ending a span puts it into a queue and never waits. Spans are lost when the queue is full, when
    the collector refuses them or does not answer in time, and at the end of the process. Lost spans
    are counted in the metrics, and the log has the time of the first loss.
    """

    def __init__(self, settings: TracingSettings, metrics: MetricsRecorder) -> None:
        """Open the export. Raises MisconfiguredError as `check_files` does."""
        check_files(settings)
        self._settings = settings
        self._metrics = metrics
        # OpenTelemetry's loggers repeat at each attempt what is counted and logged here.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._losses = _Losses(metrics, settings.endpoint)
        for name in _REPLACED_VARIABLES:
            os.environ.pop(name, None)
        exporter = _CountingExporter(_make_exporter(settings), metrics, self._losses)
        self.provider = TracerProvider(
            sampler=ParentBasedTraceIdRatio(settings.sample_ratio),
            resource=Resource.create(
                {
                    "service.name": settings.service_name,
                    "service.version": version("skillbus"),
                    "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
                }
            ),
            shutdown_on_exit=False,  # `stop` ends it, within the time limit
        )
        self._processor = _BoundedProcessor(exporter, settings, self._losses)
        self.provider.add_span_processor(self._processor)

    def stop(self) -> None:
        """Export the waiting spans, within `tracing.stop_seconds`."""
        # The processor itself would wait up to 30 seconds for a collector that does not answer.
        ending = threading.Thread(target=self.provider.shutdown, name="skillbus-spans", daemon=True)
        ending.start()
        ending.join(self._settings.stop_seconds)
        if left := self._processor.waiting:
            self._losses.add(left, "the process ended")


class _Losses:
    """Counts lost spans, and logs the first of a series."""

    def __init__(self, metrics: MetricsRecorder, endpoint: str) -> None:
        self._metrics = metrics
        self._endpoint = endpoint
        self._reason = ""

    def add(self, spans: int, reason: str) -> None:
        """Count lost spans."""
        self._metrics.record_spans("dropped", spans)
        if reason != self._reason:
            self._reason = reason
            log.warning("spans are lost", endpoint=self._endpoint, reason=reason, spans=spans)

    def end(self) -> None:
        """Note that an export succeeded."""
        if self._reason:
            self._reason = ""
            log.warning("spans are exported again", endpoint=self._endpoint)


class _CountingExporter(SpanExporter):
    """Counts the spans that an exporter sends and loses. taken: spans of all batches so far."""

    def __init__(
        self, exporter: OTLPSpanExporter, metrics: MetricsRecorder, losses: _Losses
    ) -> None:
        self._exporter = exporter
        self._metrics = metrics
        self._losses = losses
        self.taken = 0

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        self.taken += len(spans)
        if result is SpanExportResult.SUCCESS:
            self._metrics.record_spans("exported", len(spans))
            self._losses.end()
        else:
            self._losses.add(len(spans), "the collector does not take them")
        return result

    @override
    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # no annotations


class _BoundedProcessor(BatchSpanProcessor):
    """Drops and counts spans that the queue has no room for; the SDK drops the oldest silently."""

    def __init__(
        self, exporter: _CountingExporter, settings: TracingSettings, losses: _Losses
    ) -> None:
        super().__init__(
            exporter,
            max_queue_size=settings.queue_spans,
            schedule_delay_millis=settings.export_milliseconds,
            max_export_batch_size=min(_BATCH_SPANS, settings.queue_spans),
        )
        self._exporter = exporter
        self._losses = losses
        self._limit = settings.queue_spans
        self._lock = threading.Lock()
        self._ended = 0

    @property
    def waiting(self) -> int:
        """Number of spans in the queue that are neither sent nor lost yet."""
        return self._ended - self._exporter.taken

    @override
    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            has_room = self.waiting < self._limit
            self._ended += has_room
        if has_room:
            super().on_end(span)
        else:
            self._losses.add(1, "too many wait for export (tracing.queue_spans)")


def check_files(settings: TracingSettings) -> None:
    """Raise MisconfiguredError for an unusable file of headers or certificates."""
    if settings.ca_file is not None and not settings.ca_file.is_file():
        raise MisconfiguredError(f"tracing.ca_file: {settings.ca_file}: no such file")
    _read_headers(settings)


def _make_exporter(settings: TracingSettings) -> OTLPSpanExporter:
    return OTLPSpanExporter(
        endpoint=settings.endpoint.rstrip("/") + _PATH,
        headers=_read_headers(settings),
        timeout=settings.timeout_seconds,
        certificate_file=None if settings.ca_file is None else str(settings.ca_file),
    )


def _read_headers(settings: TracingSettings) -> dict[str, str]:
    """Return the headers of `tracing.headers_file`; raises MisconfiguredError
    without quoting them."""
    setting = "tracing.headers_file"
    text = read_secret(settings.headers_file, setting)
    headers = {}
    for number, line in enumerate((text or "").splitlines(), 1):
        name, found, value = (part.strip() for part in line.partition(":"))
        is_header = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not (found and is_header and value.isascii() and value.isprintable() and value):
            raise MisconfiguredError(
                f"{setting}: line {number} of {settings.headers_file} is not `name: value`"
            )
        headers[name] = value
    return headers
