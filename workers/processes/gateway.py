"""The process of `skillbus gateway`: the HTTP API of a distributed deployment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from config.errors import UsageError
from config.settings import Settings
from workers.audit.policy import record_policy_changes
from workers.backend.factory import open_store_backend
from workers.http.app import create_gateway
from workers.monitoring.metrics import ProcessMetrics
from workers.processes.current_process import stop_on_signals
from workers.processes.http_server import (
    access_rules,
    bind_socket,
    create_server,
    describe_address,
    format_address,
)
from workers.tracing.start import tracing


def run_gateway(
    settings: Settings,
    address: tuple[str, int],
    notify: Callable[[str], None],
    unprotected: bool = False,
) -> None:
    """Serve the HTTP API on `address` until SIGINT or SIGTERM.

    notify: called with a line of text when the server listens. Raises UsageError for an embedded
    deployment, whose library is held by one `serve` process.
    """
    if not settings.distributed:
        raise UsageError(
            "an embedded library is served by one process; use "
            f"`skillbus serve --listen {format_address(address)}`"
        )
    with ExitStack() as stack:
        port = stack.enter_context(bind_socket(address))
        stop_requested = stack.enter_context(stop_on_signals())
        process_metrics = ProcessMetrics()
        stack.enter_context(tracing(settings.tracing, process_metrics.recorder))
        record_policy_changes(settings)
        backend = stack.enter_context(open_store_backend(settings, writable=True))
        process_metrics.add_gauges(backend.get_status)
        notify(describe_address(settings, address))
        access = access_rules(settings, address, unprotected)
        app = create_gateway(backend, access, process_metrics)
        backend.warm_up()
        # The time that a worker has, as a client may be waiting for the answer to its query.
        server = create_server(app, settings, stop_requested, settings.workers.stop_seconds)
        server.run(sockets=[port])
