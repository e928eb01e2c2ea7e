"""HTTP client of a running `serve`, over the socket in its home."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

from config.errors import NotFoundError, PermanentError, TransientError, UsageError
from config.tracing import context_headers, current_context
from workers.audit.commands import recorded_headers

SOCKET_NAME = "serve.sock"

_TIMEOUT_SECONDS = 60.0
_ERRORS = {400: UsageError, 404: NotFoundError, 503: TransientError}
_NOT_VALID = "urn:skillbus:problem:not-valid"


class ServeClient:
    """Calls the HTTP interface of `serve`; an error response raises the error of its status."""

    def __init__(self, home: Path) -> None:
        import ssl  # both are slow to import; most commands find no `serve`

        # Its command line, which imports rich and takes longer than the rest.
        sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # blocks imports
        import httpx

        self._httpx = httpx
        # By default, httpx would load the certificates of all authorities, which takes longer than
        # the calls.
        no_certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(home / SOCKET_NAME), verify=no_certificates),
            base_url="http://skillbus",
            timeout=_TIMEOUT_SECONDS,
        )

    @classmethod
    def connect(cls, home: Path) -> ServeClient | None:
        """Connect to the `serve` that runs on a home; None if there is none."""
        try:
            with socket.socket(socket.AF_UNIX) as probe:  # a crash leaves the file of the socket
                probe.connect(str(home / SOCKET_NAME))
        except OSError:
            return None
        client = cls(home)
        if client.is_alive():
            return client
        client.close()
        return None

    def is_alive(self) -> bool:
        """Return whether `serve` answers."""
        try:
            self.get("/healthz")
        except TransientError:
            return False
        return True

    def get(self, path: str) -> Any:
        """GET a path and return its JSON data."""
        return self._call("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        """POST JSON data to a path and return JSON data."""
        return self._call("POST", path, body)

    def put(self, path: str, body: Any) -> Any:
        """PUT JSON data to a path and return JSON data."""
        return self._call("PUT", path, body)

    def delete(self, path: str, seconds: float = _TIMEOUT_SECONDS) -> Any:
        """DELETE a path and return JSON data, None for an empty response. seconds: time limit."""
        return self._call("DELETE", path, None, seconds)

    def _call(self, method: str, path: str, body: Any, seconds: float = _TIMEOUT_SECONDS) -> Any:
        try:
            response = self._client.request(
                method,
                path,
                json=body,
                headers=context_headers(current_context()) | recorded_headers(),
                timeout=seconds,
            )
        except self._httpx.TransportError as error:
            raise TransientError(f"skillbus serve does not answer: {error}") from error
        if response.is_success:
            return response.json() if response.content else None
        problem = response.json()
        kind = _ERRORS.get(response.status_code, PermanentError)
        if problem.get("type") == _NOT_VALID:
            kind = UsageError
        raise kind(str(problem.get("detail", response.text)))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
