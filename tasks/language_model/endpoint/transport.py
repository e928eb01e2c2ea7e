"""HTTP to a language model's endpoint: few headers, no proxies of the environment, small bodies."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import httpx2
from pydantic import SecretStr

MAX_BODY_BYTES = 4_000_000
"""Size of the largest answer that is read. An answer of 8,000 tokens has about 40,000 bytes."""

_CONNECT_SECONDS = 10.0
_KEEPALIVE_SECONDS = 4.0  # less than the 5 after which common servers close an idle connection


class TransferError(Exception):
    """The endpoint cannot be reached, or the transfer failed."""


class BodyTooLargeError(Exception):
    """The body is larger than MAX_BODY_BYTES."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer of the endpoint. headers: with names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class EndpointConnections:
    """Connections to the endpoint at `base_url`; only connecting has a time limit.

    Redirects are not followed: they would carry the key and the prompt to another address.
    """

    def __init__(self, base_url: str, key: SecretStr | None, connections: int) -> None:
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._key = key
        # Loading the certificates of all authorities takes longer than to open everything else.
        plain = base_url.lower().startswith("http:")
        self._client = httpx2.AsyncClient(
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True,
            trust_env=False,
            timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
            limits=httpx2.Limits(
                max_connections=connections,
                max_keepalive_connections=connections,
                keepalive_expiry=_KEEPALIVE_SECONDS,
            ),
        )

    async def post(self, body: bytes) -> HttpAnswer:
        """Send JSON to `/chat/completions`. Raises TransferError and BodyTooLargeError."""
        headers = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "skillbus",
        }
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key.get_secret_value()}"
        try:
            # Made here, since the client would add headers and cookies.
            request = httpx2.Request("POST", self._url, headers=headers, content=body)
            response = await self._client.send(request, stream=True)
            try:
                content = await _read_body(response)
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise TransferError(f"{type(error).__name__}: {error}") from None
        return HttpAnswer(response.status_code, dict(response.headers), content)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


async def _read_body(response: httpx2.Response) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":
        # It was not asked for, and its real size is unknown.
        raise TransferError("the answer is compressed")
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > MAX_BODY_BYTES:
            raise BodyTooLargeError(f"the answer has more than {MAX_BODY_BYTES} bytes")
    return bytes(content)
