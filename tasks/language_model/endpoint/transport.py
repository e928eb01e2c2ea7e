"""HTTP to a language model's endpoint: few headers, no proxies from the environment, small bodies.

The SDK adds headers that describe this machine, and fields of its own environment variables. Only
the headers that the protocol needs are sent, and the API key is added here, so that no object of
the SDK holds it: not its client, requests or exceptions.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import httpx2
from pydantic import SecretStr
from typing_extensions import override

MAX_BODY_BYTES = 4_000_000
"""Size of the largest answer that is read. An answer of 8,000 tokens has about 40,000 bytes."""

_CONNECT_SECONDS = 10.0
_KEEPALIVE_SECONDS = 4.0  # less than the 5 after which common servers close an idle connection
_SENT_HEADERS = frozenset({"host", "accept", "content-type", "content-length"})


class BodyTooLargeError(httpx2.TransportError):
    """The body is larger than MAX_BODY_BYTES."""


class CompressedBodyError(httpx2.TransportError):
    """The body is compressed, although that was refused: its real size is unknown."""


def make_http_client(url: str, key: SecretStr | None, connections: int) -> httpx2.AsyncClient:
    """Return a client of the endpoint at `url`; only connecting has a time limit.

    It follows no redirects: they would carry the key and the prompt to another address.
    """
    # To load the certificates of all authorities takes longer than to open everything else.
    plain = url.lower().startswith("http:")
    transport = httpx2.AsyncHTTPTransport(
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True,
        trust_env=False,
        limits=httpx2.Limits(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=_KEEPALIVE_SECONDS,
        ),
    )
    return httpx2.AsyncClient(
        transport=_EndpointTransport(transport, key),
        trust_env=False,
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
    )


class _EndpointTransport(httpx2.AsyncBaseTransport):
    """Adds the key, removes other headers, and bounds the body of the answer."""

    def __init__(self, transport: httpx2.AsyncHTTPTransport, key: SecretStr | None) -> None:
        self._transport = transport
        self._key = key

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = [
            (name, value) for name, value in request.headers.items() if name in _SENT_HEADERS
        ]
        headers += [("user-agent", "skillbus"), ("accept-encoding", "identity")]
        if self._key is not None:
            headers.append(("authorization", f"Bearer {self._key.get_secret_value()}"))
        sent = httpx2.Request(
            request.method,
            request.url,
            headers=headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        response = await self._transport.handle_async_request(sent)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise CompressedBodyError("the answer is compressed")
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - this transport gives no other
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_BoundedStream(response.stream),
            extensions=response.extensions,
        )

    @override
    async def aclose(self) -> None:
        await self._transport.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    """A body that ends with an error once it is too large."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise BodyTooLargeError(f"the answer has more than {MAX_BODY_BYTES} bytes")
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()
