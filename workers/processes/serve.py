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

import uvicorn
from starlette.types import ASGIApp

from config.errors import UsageError
from config.settings import Settings
from skills.events import SourceChanged
from workers.backend.factory import open_store_backend
from workers.backend.home import create_home
from workers.backend.serve_client import SOCKET_NAME
from workers.http.access import LOOPBACK_HOSTS, AccessRules
from workers.http.app import create_gateway
from workers.http.slow_clients import create_http_protocol
from workers.http.tokens import open_token_store
from workers.monitoring.metrics import ProcessMetrics
from workers.processes.watcher import Watcher

ORIGIN = "skillbus/serve"
_SOCKET_PATH_LIMIT = 104
_SHUTDOWN_GRACE_SECONDS = 5


def parse_listen_address(text: str, unprotected: bool = False) -> tuple[str, int]:
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


def resolve_listen_address(settings: Settings, text: str, unprotected: bool) -> tuple[str, int]:
    """Host and port of `--listen`, any where there are tokens; raises UsageError."""
    tokens = open_token_store(settings)
    return parse_listen_address(text, unprotected or bool(tokens.all()))


def format_address(address: tuple[str, int]) -> str:
    """Host and port as in a URL."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _access_on(settings: Settings, address: tuple[str, int], unprotected: bool) -> AccessRules:
    """Who is heard on a port: tokens; before there are any, everybody on loopback may ask."""
    is_open = unprotected or ipaddress.ip_address(address[0]).is_loopback
    hosts = (
        *LOOPBACK_HOSTS,
        *settings.gateway.hosts,
        format_address((address[0], 0)).rpartition(":")[0],
    )
    tokens = open_token_store(settings)
    return AccessRules(tokens, is_open and not tokens.are_configured(), hosts)


def run_gateway(
    settings: Settings,
    address: tuple[str, int],
    notify: Callable[[str], None],
    unprotected: bool = False,
) -> None:
    """Answer on a port for a distributed deployment until SIGINT or SIGTERM.

    Raises UsageError for an embedded one: whoever has its library answers.
    """
    if not settings.distributed:
        raise UsageError(
            "one process has an embedded library, and that is the gateway: "
            f"`skillbus serve --listen {format_address(address)}`"
        )
    with ExitStack() as stack:
        port = stack.enter_context(bind_socket(address))
        stop_requested = stack.enter_context(_stop_on_signals())
        process_metrics = ProcessMetrics()
        backend = stack.enter_context(open_store_backend(settings, writable=True))
        process_metrics.add_gauges(backend.get_status)
        notify(f"listening on http://{format_address(address)}")
        access = _access_on(settings, address, unprotected)
        server = uvicorn.Server(_config(create_gateway(backend, access, process_metrics), settings))
        if not stop_requested.is_set():
            server.run(sockets=[port])


def run_serve(
    settings: Settings,
    address: tuple[str, int] | None,
    notify: Callable[[str], None],
    unprotected: bool = False,
) -> None:
    """Run until SIGINT or SIGTERM; everything accepted is on disk then."""
    path = settings.home / SOCKET_NAME
    if len(str(path)) > _SOCKET_PATH_LIMIT:
        raise UsageError(f"{path} is too long for a socket; choose a shorter SKILLBUS_HOME")
    create_home(settings.home)
    with ExitStack() as stack:
        port = stack.enter_context(bind_socket(address)) if address else None
        stop_requested = stack.enter_context(_stop_on_signals())
        process_metrics = ProcessMetrics()
        opened = open_store_backend(settings, writable=True, measures=process_metrics.measures)
        backend = stack.enter_context(opened)
        process_metrics.add_gauges(backend.get_status)
        stack.enter_context(Watcher(backend))
        if settings.submissions.broker:
            from workers.queue.service import SubmissionService

            stack.enter_context(SubmissionService(backend, process_metrics.measures))
        # Queries should not pay for loading the model and the library.
        threading.Thread(target=backend.warm_up, name="skillbus-warm-up", daemon=True).start()
        for source in backend.graph.list_sources():
            if Path(source.root).is_dir():
                backend.submit(SourceChanged(source_id=source.source_id, root=source.root), ORIGIN)
        own = stack.enter_context(_bind_unix_socket(path))
        notify(f"serving {settings.home} on {path}")
        if port is not None and address is not None:
            notify(f"listening on http://{format_address(address)}")
            access = _access_on(settings, address, unprotected)
            stack.enter_context(
                serve_in_thread(create_gateway(backend, access, process_metrics), settings, port)
            )
        gateway = create_gateway(backend, process_metrics=process_metrics)
        server = uvicorn.Server(_config(gateway, settings))
        if not stop_requested.is_set():
            server.run(sockets=[own])


@contextmanager
def bind_socket(address: tuple[str, int]) -> Iterator[socket.socket]:
    """A socket on the address; raises UsageError when somebody else has it."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    # Only of sockets that are named TCP asyncio sends small pieces at once, not 40 ms later.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise UsageError(
                f"--listen {address[0]}:{address[1]}: {error.strerror}; choose another port"
            ) from error
        yield listener


@contextmanager
def _bind_unix_socket(path: Path) -> Iterator[socket.socket]:
    """A socket of the home, which its owner alone can speak to, whoever can look into the home."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Set by SIGINT and SIGTERM; a server that they stopped raises them once more at its end."""
    stop_requested = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: stop_requested.set())
    try:
        yield stop_requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def serve_in_thread(gateway: ASGIApp, settings: Settings, port: socket.socket) -> Iterator[None]:
    """Serve on the port in a thread: signals are the first server's business."""
    server = uvicorn.Server(_config(gateway, settings))
    thread = threading.Thread(
        target=lambda: asyncio.run(server._serve([port])), name="skillbus-port", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _config(gateway: ASGIApp, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        gateway,
        http=create_http_protocol(settings.gateway),
        ws="none",
        lifespan="off",
        log_config=None,  # its lines look as ours do
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.gateway.proxies),
        forwarded_allow_ips=list(settings.gateway.proxies),
        timeout_graceful_shutdown=_SHUTDOWN_GRACE_SECONDS,
    )
