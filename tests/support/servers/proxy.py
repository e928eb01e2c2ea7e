"""A loopback proxy before a real Elasticsearch that fails requests on demand."""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Literal
from urllib.parse import urlsplit

from tests.support.servers.loopback import QuietServer, serving

Fault = Literal["busy", "cut"]

_BUSY = b'{"error":{"type":"es_rejected_execution_exception","reason":"queue full"},"status":429}'
_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}


class Proxy:
    """busy: a request is answered 429 and not passed on. cut: it is passed on, and the connection
    is closed in the middle of the answer.

    fault, share: what happens to which share of the requests; None: nothing.
    """

    def __init__(self, url: str) -> None:
        self.fault: Fault | None = None
        self.share = 0.5
        self.met: Counter[str] = Counter()
        parts = urlsplit(url)
        self._target = (str(parts.hostname), int(parts.port or 80))
        self._chance = random.Random(1)
        self._lock = threading.Lock()
        self.url = ""

    def choose(self) -> Fault | None:
        """The fault of the next request."""
        with self._lock:
            if self.fault is None or self._chance.random() >= self.share:
                return None
            self.met[self.fault] += 1
            return self.fault

    def ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """What the server behind answers: status, headers, body."""
        connection = http.client.HTTPConnection(*self._target, timeout=120)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


@contextmanager
def proxying(url: str) -> Iterator[Proxy]:
    """A proxy before the server at `url`, for as long as the body runs."""
    proxy = Proxy(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {key: value for key, value in self.headers.items() if key.lower() not in _HOP}
            fault = proxy.choose()
            if fault == "busy":
                kind = "application/vnd.elasticsearch+json;compatible-with=9"
                given = [("x-elastic-product", "Elasticsearch"), ("content-type", kind)]
                self._answer(429, given, _BUSY)
                return
            try:
                status, given, data = proxy.ask(self.command, self.path, body, headers)
                self._answer(status, given, data, whole=fault != "cut")
            except OSError:  # the client has gone, or the server behind
                self.close_connection = True

        def _answer(
            self, status: int, given: list[tuple[str, str]], data: bytes, whole: bool = True
        ) -> None:
            self.send_response(status)
            for key, value in given:
                if key.lower() not in _HOP:
                    self.send_header(key, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data if whole else data[: len(data) // 2])
            self.close_connection = not whole

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _pass_on  # noqa: N815 - names of http.server

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with serving(Handler, QuietServer) as proxy.url:
        yield proxy
