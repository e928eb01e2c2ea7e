"""The deployment that the settings name, as commands reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.settings import Settings

if TYPE_CHECKING:
    from tasks.metrics_recorder import MetricsRecorder
    from workers.backend.base import Backend
    from workers.backend.serve_client import ServeClient


def open_backend(
    settings: Settings,
    *,
    writable: bool,
    embed_sections: bool = True,
    measures: MetricsRecorder | None = None,
) -> Backend:
    """The way to the library: a distributed deployment's queues, or all the work in this process,
    of which `measures` is told.

    What opens slowly is opened when the channel is entered or used. `paging` is left to the
    workers where there are any.
    """
    if settings.distributed:
        from workers.backend.distributed import DistributedBackend

        return DistributedBackend(settings, writable=writable)
    from workers.backend.embedded import EmbeddedBackend

    return EmbeddedBackend(
        settings, writable=writable, embed_sections=embed_sections, measures=measures
    )


def connect_to_serve(settings: Settings) -> ServeClient | None:
    """A client of the `serve` that has this home's library, if there is one."""
    if settings.distributed:
        return None
    from workers.backend.serve_client import ServeClient

    return ServeClient.connect(settings.home)
