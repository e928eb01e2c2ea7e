"""Tests cannot leave this machine."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest

from tests.support.program import loopback_only
from tests.support.program.loopback_only import RealAddressError


def test_a_connection_to_a_real_address_is_refused_and_noted() -> None:
    with socket.socket() as client, pytest.raises(RealAddressError, match=r"192\.0\.2\.1"):
        client.connect(("192.0.2.1", 80))
    with socket.socket(socket.AF_INET6) as client, pytest.raises(RealAddressError):
        client.connect_ex(("2001:db8::1", 80))
    with socket.socket(type=socket.SOCK_DGRAM) as client, pytest.raises(RealAddressError):
        client.sendto(b"x", ("192.0.2.1", 53))
    with pytest.raises(httpx.ConnectError):
        httpx.get("http://192.0.2.1/", trust_env=False)

    async def connect() -> None:
        await asyncio.open_connection("192.0.2.1", 80)

    with pytest.raises(RealAddressError):
        asyncio.run(connect())
    assert loopback_only.attempts == [
        "192.0.2.1", "2001:db8::1", "192.0.2.1", "192.0.2.1", "192.0.2.1"
    ]  # fmt: skip
    loopback_only.attempts.clear()  # these were meant


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.8.8.8"])
def test_loopback_is_reached(host: str) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        with socket.create_connection((host, server.getsockname()[1])) as client:
            client.sendall(b"x")
        accepted, _ = server.accept()
        accepted.close()
