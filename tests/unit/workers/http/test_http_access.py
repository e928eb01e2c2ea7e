"""At a port, without a library: clients that are slow, too many of them, and web pages."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

from config.inbound_settings import GatewaySettings
from config.settings import Settings
from deploy.stack.ports import free_port
from tests.support.program.program import wait_for
from workers.http.access import AccessMiddleware, AccessRules
from workers.http.app import create_gateway
from workers.http.limits.rate_limits import get_client_network
from workers.http.limits.slow_clients import create_http_protocol
from workers.http.tokens import TokenStore
from workers.processes.http_server import bind_socket, serve_in_thread

PATIENT = GatewaySettings(head_seconds=2.0, body_seconds=2.0, send_seconds=2.0)
MEGABYTES = 20
HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Takes a body in; answers shortly, at `/long` at length."""
    while (await receive()).get("more_body"):
        pass
    body = b"x" * (MEGABYTES * 1_000_000 if scope["path"] == "/long" else 2)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def served(settings: GatewaySettings) -> Iterator[uvicorn.Server]:
    """The access checks before the app, on a port; `server.servers` has its socket."""
    config = uvicorn.Config(
        AccessMiddleware(app, AccessRules(), settings),
        http=create_http_protocol(settings),
        port=0,
        lifespan="off",
        log_level="critical",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def connected(server: uvicorn.Server, **options: int) -> Iterator[socket.socket]:
    with socket.socket() as made:
        for name, value in options.items():
            made.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        made.settimeout(60)
        made.connect(server.servers[0].sockets[0].getsockname())
        yield made


def read(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65_536):
            got += data
    return got


def answered(server: uvicorn.Server) -> bool:
    with connected(server) as other:
        other.sendall(HEAD + b"\r\n")
        return other.recv(12) == b"HTTP/1.1 200"


def check_that_a_head_that_does_not_go_on_is_cut(begun: bytes) -> None:
    with served(PATIENT) as server, connected(server) as slow:
        slow.sendall(begun)
        assert b"HTTP" not in read(slow)
        wait_for(lambda: not server.server_state.connections)


def drip(server: uvicorn.Server, slow: socket.socket, piece: bytes) -> None:
    """Send pieces, faster than any of the limits, until the connection is closed."""
    with contextlib.suppress(ConnectionError):
        for _ in range(200):
            slow.sendall(piece)
            assert answered(server)
            time.sleep(0.05)
        pytest.fail("each piece put the end off")


def check_that_a_head_that_does_not_end_is_cut() -> None:
    with served(PATIENT) as server, connected(server) as slow:
        slow.sendall(HEAD)
        drip(server, slow, b"X-A: b\r\n")
        assert b"HTTP" not in read(slow)
        wait_for(lambda: not server.server_state.connections)


def check_that_the_head_of_a_second_request_is_cut_too() -> None:
    with served(PATIENT) as server, connected(server) as slow:
        slow.sendall(HEAD + b"\r\n")
        assert slow.recv(65_536).startswith(b"HTTP/1.1 200")
        slow.sendall(b"GET / ")
        assert b"HTTP" not in read(slow)


def check_that_a_body_that_does_not_end_gets_408_and_is_cut() -> None:
    with served(PATIENT) as server, connected(server) as slow:
        slow.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
        drip(server, slow, b"x")
        assert read(slow).startswith(b"HTTP/1.1 408")


def check_that_an_answer_that_is_not_read_is_dropped() -> None:
    with served(PATIENT) as server, connected(server, SO_RCVBUF=4_096) as slow:
        slow.sendall(HEAD.replace(b"/ ", b"/long ", 1) + b"\r\n")
        wait_for(lambda: server.server_state.connections)
        assert answered(server)
        wait_for(lambda: not server.server_state.connections)
        wait_for(lambda: not server.server_state.tasks)


def check_that_an_answer_that_is_taken_steadily_arrives() -> None:
    with served(PATIENT) as server, connected(server, SO_RCVBUF=65_536) as steady:
        steady.sendall(HEAD.replace(b"/ ", b"/long ", 1) + b"Connection: close\r\n\r\n")
        size = 0
        while data := steady.recv(1_000_000):
            size += len(data)
            time.sleep(0.01)
        assert size > MEGABYTES * 1_000_000


SLOW_CLIENTS: dict[str, Callable[[], None]] = {
    "nothing comes": partial(check_that_a_head_that_does_not_go_on_is_cut, b""),
    "a head does not go on": partial(check_that_a_head_that_does_not_go_on_is_cut, b"GET / HT"),
    "a head does not end": check_that_a_head_that_does_not_end_is_cut,
    "a second head does not end": check_that_the_head_of_a_second_request_is_cut_too,
    "a body does not end": check_that_a_body_that_does_not_end_gets_408_and_is_cut,
    "an answer is not read": check_that_an_answer_that_is_not_read_is_dropped,
    "an answer is taken steadily": check_that_an_answer_that_is_taken_steadily_arrives,
}


@pytest.fixture(scope="module")
def slow_clients() -> Iterator[dict[str, Future[None]]]:
    """The checks of slow clients, which run at the same time: each waits for seconds."""
    with ThreadPoolExecutor(len(SLOW_CLIENTS)) as threads:
        yield {name: threads.submit(check) for name, check in SLOW_CLIENTS.items()}


@pytest.mark.parametrize("client", SLOW_CLIENTS)
def test_a_slow_client_is_cut_and_a_steady_one_is_not(
    slow_clients: dict[str, Future[None]], client: str
) -> None:
    slow_clients[client].result()


def test_too_many_connections_get_503() -> None:
    few = PATIENT.model_copy(update={"connections": 2, "head_seconds": 120.0})
    with served(few) as server, contextlib.ExitStack() as open_ones:
        for _ in range(2):
            open_ones.enter_context(connected(server))
        wait_for(lambda: len(server.server_state.connections) == 2)
        third = open_ones.enter_context(connected(server))
        third.sendall(HEAD + b"\r\n")
        refusal = read(third).lower()
        assert refusal.startswith(b"http/1.1 503")
        assert b"\r\nretry-after: " in refusal
        assert b"gateway.connections" in refusal
        probe = open_ones.enter_context(connected(server))
        probe.sendall(HEAD.replace(b"/ ", b"/healthz ", 1) + b"\r\n")
        assert probe.recv(12) == b"HTTP/1.1 200"
        open_ones.enter_context(connected(server))
        fifth = open_ones.enter_context(connected(server))
        assert read(fifth) == b""
    with served(few) as server:
        assert answered(server)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> httpx.AsyncClient:
    """A web page of an origin that may call."""
    home = tmp_path_factory.mktemp("page")
    gateway = GatewaySettings(origins=("https://Board.example/",))
    backend: Any = SimpleNamespace(
        settings=Settings(home=home, gateway=gateway), journal=None, skills=None
    )
    transport = httpx.ASGITransport(
        create_gateway(backend, AccessRules(TokenStore(home / "tokens.json")))
    )
    headers = {"Origin": "https://board.example"}
    return httpx.AsyncClient(transport=transport, base_url="http://skillbus", headers=headers)


def test_a_page_of_an_allowed_origin_passes_the_preflight_without_a_token(
    page: httpx.AsyncClient,
) -> None:
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type, prefer",
    }
    allowed = asyncio.run(page.options("/v1/queries", headers=asked))
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://board.example"
    refused = asyncio.run(page.options("/v1/queries", headers=asked | {"Origin": "https://x"}))
    assert "access-control-allow-origin" not in refused.headers


def test_a_page_may_send_the_headers_of_an_mcp_client(page: httpx.AsyncClient) -> None:
    sent = "authorization, content-type, mcp-protocol-version, mcp-method, mcp-name"
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": sent}
    assert asyncio.run(page.options("/mcp", headers=asked)).status_code == 200


def test_a_page_can_read_why_it_was_refused(page: httpx.AsyncClient) -> None:
    answer = asyncio.run(page.get("/v1/skills"))
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "https://board.example"
    exposed = answer.headers["access-control-expose-headers"]
    assert {"X-Request-Id", "Preference-Applied", "Bundle-Status"} < set(exposed.split(", "))


@pytest.mark.parametrize(
    ("proxies", "expected"), [((), "127.0.0.1"), (("127.0.0.0/8",), "203.0.113.9")]
)
def test_only_proxies_that_are_named_say_who_calls(
    tmp_path: Path, proxies: tuple[str, ...], expected: str
) -> None:
    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": get_client_network(scope).encode()})

    settings = Settings(home=tmp_path, gateway=GatewaySettings(proxies=proxies))
    with bind_socket(("127.0.0.1", free_port())) as port, serve_in_thread(echo, settings, port):
        host, number = port.getsockname()
        answer = httpx.get(
            f"http://{host}:{number}/",
            headers={"X-Forwarded-For": "198.51.100.1, 203.0.113.9"},
            timeout=60,
        )
    assert answer.text == expected


def test_too_many_requests_get_a_time_to_retry_after(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, gateway=GatewaySettings(burst=3, requests_a_minute=1))
    backend: Any = SimpleNamespace(settings=settings, journal=None, skills=None)
    access = AccessRules(TokenStore(tmp_path / "tokens.json"), allow_anonymous=True)
    client = TestClient(create_gateway(backend, access), "http://skillbus")
    assert [client.get("/nothing").status_code for _ in range(4)] == [404, 404, 404, 429]
    refused = client.get("/nothing")
    assert refused.json()["type"] == "urn:skillbus:problem:too-many-requests"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert client.get("/healthz").status_code == 200
