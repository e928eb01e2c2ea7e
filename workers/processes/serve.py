"""The process of `skillbus serve`: watcher, workers and HTTP API of an embedded library."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack

from config.errors import UsageError
from config.settings import Settings
from workers.audit.policy import record_policy_changes
from workers.backend.factory import find_serve, open_store_backend
from workers.backend.home import create_home
from workers.backend.serve_client import SOCKET_NAME
from workers.http.app import create_gateway
from workers.monitoring.metrics import ProcessMetrics
from workers.processes.current_process import stop_on_signals
from workers.processes.http_server import (
    access_rules,
    bind_socket,
    bind_unix_socket,
    create_server,
    describe_address,
    serve_in_thread,
)
from workers.processes.watcher import Watcher
from workers.queue.service import SubmissionService
from workers.tracing.start import tracing

_SOCKET_PATH_LIMIT = 103
"""Bytes: macOS has room for 104 with the byte that ends the path, Linux for 108."""


def run_serve(
    settings: Settings,
    address: tuple[str, int] | None,
    notify: Callable[[str], None],
    unprotected: bool = False,
) -> None:
    """Watch, ingest and serve the library until SIGINT or SIGTERM.

    address: host and port to listen on as well; None: only the socket of the home. notify: called
    with a line of text for each listening socket. Raises UsageError.
    """
    path = settings.home / SOCKET_NAME
    if len(os.fsencode(path)) > _SOCKET_PATH_LIMIT:
        raise UsageError(f"{path} is too long for a socket; choose a shorter SKILLBUS_HOME")
    create_home(settings.home)
    if (other := find_serve(settings)) is not None:
        other.close()
        raise UsageError(f"`skillbus serve` runs on {settings.home} already; commands use it")
    with ExitStack() as stack:
        port = stack.enter_context(bind_socket(address)) if address else None
        stop_requested = stack.enter_context(stop_on_signals())
        process_metrics = ProcessMetrics()
        stack.enter_context(tracing(settings.tracing, process_metrics.recorder))
        record_policy_changes(settings)
        opened = open_store_backend(settings, writable=True, metrics=process_metrics.recorder)
        backend = stack.enter_context(opened)
        process_metrics.add_gauges(backend.get_status)
        stack.enter_context(Watcher(backend))
        if settings.submissions.broker:
            stack.enter_context(SubmissionService(backend, process_metrics.recorder))
        # Started now, so that the first query does not wait for the model and the library.
        warming = backend.start_warm_up()
        # A thread in native code aborts the process if the interpreter ends meanwhile.
        stack.callback(warming.join)
        own = stack.enter_context(bind_unix_socket(path))
        notify(f"serving {settings.home} on {path}")
        if port is not None and address is not None:
            notify(describe_address(settings, address))
            access = access_rules(settings, address, unprotected)
            stack.enter_context(
                serve_in_thread(create_gateway(backend, access, process_metrics), settings, port)
            )
        gateway = create_gateway(backend, process_metrics=process_metrics)
        create_server(gateway, settings, stop_requested).run(sockets=[own])
