"""Starts the tracing of a process and ends it with a last export.

OpenTelemetry is imported here, in functions, and only if `tracing.endpoint` is set.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from config.errors import MisconfiguredError
from config.tracing import set_tracer
from config.tracing_settings import TracingSettings
from tasks.metrics_recorder import MetricsRecorder, NullMetrics


@contextmanager
def tracing(settings: TracingSettings, metrics: MetricsRecorder | None = None) -> Iterator[None]:
    """Make and export spans in this process, if `tracing.endpoint` is set.

    Raises MisconfiguredError if a package or a file is missing.
    """
    stop = start_tracing(settings, metrics)
    try:
        yield
    finally:
        stop()


def start_tracing(
    settings: TracingSettings, metrics: MetricsRecorder | None = None
) -> Callable[[], None]:
    """Start tracing as `tracing` does, for a process that ends elsewhere; return
    the function that ends it.

    Threads do not survive a fork, so a process that forks starts tracing in its children.
    """
    if not settings.endpoint:
        return lambda: None
    check_tracing(settings)
    from workers.tracing.export import SpanExport
    from workers.tracing.open_telemetry import OpenTelemetryTracer

    exporting = SpanExport(settings, metrics or NullMetrics())
    set_tracer(OpenTelemetryTracer(exporting.provider, settings))

    def stop() -> None:
        set_tracer(None)
        exporting.stop()

    return stop


def check_tracing(settings: TracingSettings) -> None:
    """Raise MisconfiguredError if a package or a file that tracing needs is missing."""
    if not settings.endpoint:
        return
    try:
        export = importlib.import_module("workers.tracing.export")
    except ImportError as error:
        raise MisconfiguredError(
            f"tracing.endpoint is set, but OpenTelemetry is not installed ({error}): install it "
            "with `pip install '.[tracing]'` in a clone of skillbus, or unset tracing.endpoint"
        ) from None
    export.check_files(settings)
