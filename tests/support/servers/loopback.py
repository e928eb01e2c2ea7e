"""HTTP servers on the loopback interface, in threads of the test itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietServer(ThreadingHTTPServer):
    """Says nothing of clients that hang up."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


@contextmanager
def serving(
    handler: type[BaseHTTPRequestHandler],
    kind: type[ThreadingHTTPServer] = ThreadingHTTPServer,
) -> Iterator[str]:
    """The address of a server whose requests `handler` answers, while the body runs."""
    server = kind(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
