"""A loopback HTTP server that answers what a test says: what a real server does only in trouble."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.servers.loopback import serving


@dataclass
class Request:
    """What a client asked; lines: its body as JSON lines. Names of headers in small letters."""

    method: str
    path: str
    lines: list[Any]
    headers: dict[str, str]


@dataclass
class Answer:
    """Its answer; `text` goes out instead of JSON."""

    status: int = 200
    body: Any = field(default_factory=dict)
    text: str | None = None
    product: str = "Elasticsearch"
    seconds: float = 0.0


@contextmanager
def answering(answer: Callable[[Request], Answer]) -> Iterator[str]:
    """The address of a server that calls `answer` for each request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            text = self.rfile.read(length).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            lines = [json.loads(line) for line in text.splitlines() if line.strip()]
            found = answer(Request(self.command, self.path, lines, headers))
            time.sleep(found.seconds)
            data = (json.dumps(found.body) if found.text is None else found.text).encode()
            self.send_response(found.status)
            kind = "application/vnd.elasticsearch+json;compatible-with=9"
            self.send_header("content-type", kind if found.text is None else "text/html")
            self.send_header("content-length", str(len(data)))
            if found.product:
                self.send_header("x-elastic-product", found.product)
            self.end_headers()
            with suppress(ConnectionError):  # a client that lost patience
                if self.command != "HEAD":
                    self.wfile.write(data)
                self.wfile.flush()

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815 - names of http.server

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with serving(Handler) as address:
        yield address
