"""HTTP servers of `serve` and `gateway`: listen addresses, sockets, signals and uvicorn."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import math
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from config.errors import UsageError
from config.settings import Settings
from workers.http.access import LOOPBACK_HOSTS, AccessRules
from workers.http.limits.slow_clients import create_http_protocol
from workers.http.oidc.verifier import OidcVerifier
from workers.http.tokens import open_token_store

_SHUTDOWN_GRACE_SECONDS = 5


def parse_listen_address(text: str, unprotected: bool = False) -> tuple[str, int]:
    """Return host and port of `--listen`.

    unprotected: allow addresses other than loopback, because tokens exist or another access control
    applies, such as a container whose port is published on loopback. Raises UsageError.
    """
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address((host or "127.0.0.1").strip("[]"))
        number = int(port)
    except ValueError:
        raise UsageError(f"--listen {text}: write IP:PORT, such as 127.0.0.1:8765") from None
    if not (address.is_loopback or unprotected):
        raise UsageError(
            f"--listen {text}: without a token only loopback addresses are allowed; create one "
            "with `skillbus tokens add NAME` (--unprotected: only behind another access control)"
        )
    if not 0 < number < 65536:
        raise UsageError(f"--listen {text}: a port is between 1 and 65535")
    return str(address), number


def resolve_listen_address(settings: Settings, text: str, unprotected: bool) -> tuple[str, int]:
    """Return host and port of `--listen`; with tokens any address is allowed. Raises UsageError."""
    tokens = open_token_store(settings)
    return parse_listen_address(
        text, unprotected or bool(tokens.all()) or bool(settings.oidc.issuer)
    )


def format_address(address: tuple[str, int]) -> str:
    """Return host and port as in a URL: `127.0.0.1:8765`, `[::1]:8765`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def describe_address(settings: Settings, address: tuple[str, int]) -> str:
    """Return a line with the addresses of a process and of its console."""
    url = f"http://{format_address(address)}"
    console = f"; the console is at {url}/console" if settings.gateway.console else ""
    return f"listening on {url}{console}"


def access_rules(settings: Settings, address: tuple[str, int], unprotected: bool) -> AccessRules:
    """Return the access rules of an address.

    Without tokens and without an issuer, loopback and unprotected addresses are open.
    """
    is_open = unprotected or ipaddress.ip_address(address[0]).is_loopback
    hosts = (
        *LOOPBACK_HOSTS,
        *settings.gateway.hosts,
        format_address((address[0], 0)).rpartition(":")[0],
    )
    tokens = open_token_store(settings)
    oidc = OidcVerifier(settings.oidc) if settings.oidc.issuer else None
    allow_anonymous = is_open and oidc is None and not tokens.are_configured()
    return AccessRules(tokens, allow_anonymous, hosts, oidc)


@contextmanager
def bind_socket(address: tuple[str, int]) -> Iterator[socket.socket]:
    """Open a socket that listens at the address; raises UsageError if that fails.

    Clients that connect before a server accepts wait for it, instead of being refused.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given; small writes would wait 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()
        except OSError as error:
            is_elsewhere = error.errno == errno.EADDRNOTAVAIL
            remedy = "name an address of this machine" if is_elsewhere else "choose another port"
            raise UsageError(
                f"--listen {format_address(address)}: {error.strerror}; {remedy}"
            ) from error
        yield listener


@contextmanager
def bind_unix_socket(path: Path) -> Iterator[socket.socket]:
    """Open a Unix socket that listens and that only its owner can connect to; removed on exit."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def serve_in_thread(gateway: ASGIApp, settings: Settings, port: socket.socket) -> Iterator[None]:
    """Serve on a socket in a thread; signals are left to the server in the main thread."""
    server = create_server(gateway, settings, threading.Event())
    thread = threading.Thread(
        target=lambda: asyncio.run(server._serve([port])), name="skillbus-http", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


class _Server(uvicorn.Server):
    """Ends also if a signal came before uvicorn's own handlers of signals were set."""

    def __init__(self, config: uvicorn.Config, stop_requested: threading.Event) -> None:
        super().__init__(config)
        self._stop_requested = stop_requested

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._stop_requested.is_set():
            self.should_exit = True


def create_server(
    gateway: ASGIApp,
    settings: Settings,
    stop_requested: threading.Event,
    stop_seconds: float = _SHUTDOWN_GRACE_SECONDS,
) -> uvicorn.Server:
    """Return a uvicorn server of the HTTP API.

    stop_requested: the server ends at once if it is set when the server starts. stop_seconds: time
    for requests to finish once the server is asked to stop.
    """
    config = uvicorn.Config(
        gateway,
        http=create_http_protocol(settings.gateway),
        ws="none",
        lifespan="off",
        log_config=None,  # keep the format of our logs
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.gateway.proxies),
        forwarded_allow_ips=list(settings.gateway.proxies),
        timeout_graceful_shutdown=math.ceil(stop_seconds),
    )
    return _Server(config, stop_requested)
