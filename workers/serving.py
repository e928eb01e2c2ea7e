"""The process behind `serve`."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from config.errors import UsageError
from config.settings import Settings
from skills.events import SourceChanged
from tasks.app import queue_depth
from workers.channel import Channel
from workers.client import SOCKET
from workers.deployment import open_channel
from workers.gateway.app import create_gateway
from workers.home import make_home
from workers.metrics import OneProcess, Report
from workers.status import age_of_oldest_change, status_of
from workers.watcher import Watcher
from workers.workloads import ALL_QUEUES

ORIGIN = "skillbus/serve"
_SOCKET_PATH_LIMIT = 104
_PATIENCE_SECONDS = 2.0


def parse_listen(text: str, unprotected: bool = False) -> tuple[str, int]:
    """Host and port of `--listen`.

    Raises UsageError unless it is a loopback address; `unprotected` allows any: there are tokens,
    or something else keeps others out, as of a container whose port is published on loopback.
    """
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address((host or "127.0.0.1").strip("[]"))
        number = int(port)
    except ValueError:
        raise UsageError(f"--listen {text}: write 127.0.0.1:PORT") from None
    if not (address.is_loopback or unprotected):
        raise UsageError(
            f"--listen {text}: only loopback addresses while there is no token; make one with "
            "`skillbus tokens add NAME` (where something else keeps others out: --unprotected)"
        )
    if not 0 < number < 65536:
        raise UsageError(f"--listen {text}: a port is between 1 and 65535")
    return str(address), number


def run_serve(
    settings: Settings, address: tuple[str, int] | None, note: Callable[[str], None]
) -> None:
    """Run until SIGINT or SIGTERM; everything accepted is on disk then."""
    path = settings.home / SOCKET
    if len(str(path)) > _SOCKET_PATH_LIMIT:
        raise UsageError(f"{path} is too long for a socket; choose a shorter SKILLBUS_HOME")
    make_home(settings.home)
    with ExitStack() as stack:
        port = stack.enter_context(_bound(address)) if address else None
        told = stack.enter_context(_told_to_stop())
        figures = OneProcess()
        opened = open_channel(settings, writable=True, measures=figures.measures)
        channel = stack.enter_context(opened)
        figures.add_gauges(_reporter(channel, stack))
        stack.enter_context(Watcher(channel))
        if settings.submissions.broker:
            from workers.submissions.service import Submissions

            stack.enter_context(Submissions(channel))
        # Queries should not pay for loading the model and the library.
        threading.Thread(target=channel.warm_up, name="skillbus-warm-up", daemon=True).start()
        for source in channel.graph.sources():
            if Path(source.root).is_dir():
                channel.submit(SourceChanged(source_id=source.source_id, root=source.root), ORIGIN)
        path.unlink(missing_ok=True)
        stack.callback(path.unlink, missing_ok=True)
        note(f"serving {settings.home} on {path}")
        if port is not None and address is not None:
            note(f"listening on http://{address[0]}:{address[1]}")
            stack.enter_context(_serving_beside(create_gateway(channel, True, figures), port))
        server = uvicorn.Server(_config(create_gateway(channel, figures=figures), uds=str(path)))
        if not told.is_set():
            server.run()


def _reporter(channel: Channel, stack: ExitStack) -> Callable[[], Report]:
    """Asks how the library stands, for whoever scrapes figures."""
    settings = channel.settings
    if settings.distributed:
        from workers.overview import Overview

        overview = Overview(settings, channel.app)
        stack.callback(overview.close)
        return lambda: overview.report(min(_PATIENCE_SECONDS, settings.servers.timeout_seconds))

    def report() -> Report:
        trouble = channel.activity.trouble
        told = status_of(settings, channel.graph, channel.journal, True, trouble)
        depths = {name: queue_depth(channel.app, name) for name in ALL_QUEUES}
        return {
            **told,
            "queues": [{"queue": name, "waiting": count} for name, count in depths.items()],
            "oldest_waiting_seconds": age_of_oldest_change(channel.graph, channel.activity),
        }

    return report


@contextmanager
def _bound(address: tuple[str, int]) -> Iterator[socket.socket]:
    """A socket on the address; raises UsageError when somebody else has it."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(address)
        except OSError as error:
            raise UsageError(
                f"--listen {address[0]}:{address[1]}: {error.strerror}; choose another port"
            ) from error
        yield bound


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Set by SIGINT and SIGTERM; a server that they stopped raises them once more at its end."""
    told = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: told.set())
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _serving_beside(gateway: FastAPI, port: socket.socket) -> Iterator[None]:
    """Serve on the port in a thread: signals are the first server's business."""
    server = uvicorn.Server(_config(gateway))
    thread = threading.Thread(
        target=lambda: asyncio.run(server._serve([port])), name="skillbus-port", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _config(gateway: FastAPI, **where: Any) -> uvicorn.Config:
    return uvicorn.Config(gateway, log_level="warning", access_log=False, lifespan="off", **where)
