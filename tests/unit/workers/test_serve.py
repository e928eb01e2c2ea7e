"""`--listen`: loopback only, and clear about anything else."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from config.errors import UsageError
from config.settings import Settings
from workers.processes.current_process import stop_on_signals
from workers.processes.http_server import (
    bind_socket,
    bind_unix_socket,
    create_server,
    parse_listen_address,
)
from workers.processes.serve import run_serve


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8765", ("127.0.0.1", 8765)),
        ("127.8.9.1:1", ("127.8.9.1", 1)),
        (":8765", ("127.0.0.1", 8765)),
        ("8765", ("127.0.0.1", 8765)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_loopback_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_listen_address(text) == address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.0.0.0:80", "only loopback addresses are allowed"),
        ("192.168.1.5:80", "only loopback addresses are allowed"),
        ("[::]:80", "only loopback addresses are allowed"),
        ("localhost:80", "write IP:PORT"),
        ("127.0.0.1", "write IP:PORT"),
        ("127.0.0.1:", "write IP:PORT"),
        ("127.0.0.1:http", "write IP:PORT"),
        ("", "write IP:PORT"),
        ("127.0.0.1:0", "between 1 and 65535"),
        ("127.0.0.1:65536", "between 1 and 65535"),
        ("127.0.0.1:-1", "between 1 and 65535"),
    ],
)
def test_anything_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_listen_address(text)


@pytest.mark.parametrize(
    ("text", "address"), [("0.0.0.0:80", ("0.0.0.0", 80)), ("[::]:80", ("::", 80))]
)
def test_any_address_where_something_else_protects_it(text: str, address: tuple[str, int]) -> None:
    assert parse_listen_address(text, unprotected=True) == address


def test_an_address_that_cannot_be_listened_at_is_refused_with_advice() -> None:
    with bind_socket(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        with (
            pytest.raises(UsageError, match="in use; choose another port"),
            bind_socket((address[0], address[1])),
        ):
            pass
    with (
        pytest.raises(
            UsageError, match=r"\[2001:db8::1\]:8765: .*; name an address of this machine"
        ),
        bind_socket(("2001:db8::1", 8765)),
    ):
        pass


def test_small_answers_are_sent_at_once() -> None:
    """asyncio sets TCP_NODELAY where the protocol is named, and what is accepted inherits it."""
    with bind_socket(("127.0.0.1", 0)) as port:
        assert port.proto == socket.IPPROTO_TCP


def test_what_connects_before_the_server_accepts_waits(tmp_path: Path) -> None:
    path = tmp_path / "serve.sock"
    with (
        bind_socket(("127.0.0.1", 0)) as port,
        bind_unix_socket(path),
        socket.create_connection(port.getsockname()),
        socket.socket(socket.AF_UNIX) as own,
    ):
        own.connect(str(path))


def test_a_home_is_refused_whose_socket_has_too_long_a_path_in_bytes() -> None:
    home = Path(tempfile.gettempdir(), "技" * 32)
    with pytest.raises(UsageError, match="too long for a socket; choose a shorter SKILLBUS_HOME"):
        run_serve(Settings(home=home), None, print)
    assert not home.exists()


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that is never called."""
    raise AssertionError(scope, receive, send)


@pytest.mark.timeout(30)
def test_a_signal_that_came_before_the_server_had_its_handlers_ends_it() -> None:
    with stop_on_signals() as stop_requested, bind_socket(("127.0.0.1", 0)) as port:
        server = create_server(refuse, Settings(), stop_requested)
        os.kill(os.getpid(), signal.SIGTERM)
        server.run(sockets=[port])
        assert stop_requested.is_set()
