"""Bounds on the size and duration of request bodies."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from config.inbound_settings import GatewaySettings

_MAX_DIGITS = 12


def parse_content_length(
    headers: Mapping[str, str], response_headers: Mapping[str, str] | None = None
) -> float:
    """Return the `Content-Length` of a request, 0 without one, infinity for over 12 digits.

    Raises HTTPException (400), with `response_headers`, if it is not a number.
    """
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise HTTPException(400, "content-length: not a number", response_headers)
    return int(length) if len(length) <= _MAX_DIGITS else math.inf


def check_content_length(headers: Mapping[str, str], settings: GatewaySettings) -> None:
    """Raise HTTPException for a `Content-Length` that is too large or not a number."""
    if parse_content_length(headers) > settings.body_bytes:
        raise _too_large(settings.body_bytes)


class BoundedBody:
    """ASGI `receive` that bounds a body's size (413) and the time until it is complete (408)."""

    def __init__(self, receive: Receive, settings: GatewaySettings) -> None:
        self._receive = receive
        self._max_bytes = settings.body_bytes
        self._seconds = settings.body_seconds
        self._end = time.monotonic() + settings.body_seconds
        self._size = 0
        self._complete = False

    async def __call__(self) -> Message:
        """Return the next message; raises HTTPException for a body that is too large or slow."""
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.001, self._end - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            detail = f"the body is incomplete after {self._seconds:g} s (gateway.body_seconds)"
            raise HTTPException(408, detail) from None
        self._size += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._size > self._max_bytes:
            raise _too_large(self._max_bytes)
        return message


def _too_large(max_bytes: int) -> HTTPException:
    return HTTPException(413, f"more than {max_bytes} bytes (gateway.body_bytes)")
