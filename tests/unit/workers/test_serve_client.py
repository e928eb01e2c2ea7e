"""The client of `serve`: found where it runs, and errors by kind."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from config.errors import PermanentError, TransientError, UsageError
from workers.backend.serve_client import SOCKET_NAME, ServeClient

ANSWERS: dict[str, tuple[int, dict[str, Any]]] = {
    "/healthz": (200, {"state": "alive"}),
    "/v1/status": (503, {"detail": "the catalog is busy"}),
    "/usage": (400, {"detail": "empty task"}),
    "/invalid": (422, {"detail": "reason: too short", "type": "urn:skillbus:problem:not-valid"}),
    "/failed": (422, {"detail": "gone", "type": "urn:skillbus:problem:failed"}),
    "/busy": (503, {"detail": "try again"}),
}


class Handler(BaseHTTPRequestHandler):
    """Answers from a table; POST gives back what was sent."""

    def do_GET(self) -> None:
        self._answer(*ANSWERS[self.path])

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(202, {"got": json.loads(body)})

    def _answer(self, code: int, data: dict[str, Any]) -> None:
        content = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def address_string(self) -> str:
        return "socket"


class UnixServer(HTTPServer):
    """HTTP on a socket in a folder."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    server = UnixServer(str(tmp_path / SOCKET_NAME), Handler)  # type: ignore[arg-type]  # of AF_INET
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield tmp_path
    server.shutdown()
    thread.join()
    server.server_close()


def test_without_a_socket_there_is_no_client(tmp_path: Path) -> None:
    assert ServeClient.connect(tmp_path) is None


# The HTTP library leaves a socket that could not connect to the garbage collector.
@pytest.mark.filterwarnings("ignore:.*<socket.socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")
def test_a_socket_without_a_listener_is_no_serve(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / SOCKET_NAME))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ServeClient, "__init__", None)  # would import httpx
        assert ServeClient.connect(tmp_path) is None
    client = ServeClient(tmp_path)
    with pytest.raises(TransientError, match="does not answer"):
        client.get("/v1/status")
    client.close()


def test_a_running_serve_is_found_whatever_its_stores_do(home: Path) -> None:
    client = ServeClient.connect(home)
    assert client is not None
    assert client.post("/echo", {"task": "烘焙"}) == {"got": {"task": "烘焙"}}
    client.close()


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("/usage", UsageError, "empty task"),
        ("/invalid", UsageError, "too short"),
        ("/failed", PermanentError, "gone"),
        ("/busy", TransientError, "try again"),
    ],
)
def test_errors_keep_their_kind(home: Path, path: str, kind: type[Exception], said: str) -> None:
    client = ServeClient(home)
    with pytest.raises(kind, match=said) as caught:
        client.get(path)
    assert type(caught.value) is kind
    client.close()
