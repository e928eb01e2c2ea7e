"""Talking to a running `serve` over the socket in the home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from config.errors import NotFoundError, PermanentError, TransientError, UsageError

SOCKET_NAME = "serve.sock"

_KINDS = {400: UsageError, 404: NotFoundError}


class ServeClient:
    """Calls the gateway of the home's `serve`."""

    def __init__(self, home: Path) -> None:
        import httpx

        self._httpx = httpx
        self._client = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(home / SOCKET_NAME)),
            base_url="http://skillbus",
            timeout=60.0,
        )

    @classmethod
    def connect(cls, home: Path) -> ServeClient | None:
        """A client when `serve` runs on this home, else None."""
        if not (home / SOCKET_NAME).exists():
            return None
        client = cls(home)
        try:
            client.get("/v1/status")
        except TransientError:
            client.close()
            return None
        return client

    def get(self, path: str) -> Any:
        """GET a path; JSON data."""
        return self._call("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        """POST JSON data to a path; JSON data."""
        return self._call("POST", path, body)

    def delete(self, path: str) -> Any:
        """DELETE a path; JSON data, None where there is none."""
        return self._call("DELETE", path, None)

    def _call(self, method: str, path: str, body: Any) -> Any:
        try:
            response = self._client.request(method, path, json=body)
        except self._httpx.TransportError as error:
            raise TransientError(f"skillbus serve does not answer: {error}") from error
        if response.is_success:
            return response.json() if response.content else None
        detail = response.json().get("detail", response.text)
        if response.status_code == 503:
            raise TransientError(str(detail))
        raise _KINDS.get(response.status_code, PermanentError)(str(detail))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
