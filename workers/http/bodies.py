"""Bodies of requests, within a size and a time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from config.interface_settings import GatewaySettings

_MOST_DIGITS = 12


def declared_length(headers: Mapping[str, str], closing: Mapping[str, str] | None = None) -> float:
    """Bytes that a request says it brings, by headers: infinity where no body has so many digits.

    Raises HTTPException, with the headers `closing`, for what is no number.
    """
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise HTTPException(400, "content-length: not a number", closing)
    return int(length) if len(length) <= _MOST_DIGITS else math.inf


def check_length(headers: Mapping[str, str], settings: GatewaySettings) -> None:
    """Raise HTTPException for a body that is said to be too large, or no number of bytes."""
    if declared_length(headers) > settings.body_bytes:
        raise _too_large(settings.body_bytes)


class BoundedBody:
    """Takes a body in within a size and a time."""

    def __init__(self, receive: Receive, settings: GatewaySettings) -> None:
        self._receive = receive
        self._most = settings.body_bytes
        self._seconds = settings.body_seconds
        self._end = time.monotonic() + settings.body_seconds
        self._size = 0
        self._whole = False

    async def __call__(self) -> Message:
        """The next message; raises HTTPException for a body that is too large or too slow."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.001, self._end - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            detail = f"the body is not all there after {self._seconds:g} s (gateway.body_seconds)"
            raise HTTPException(408, detail) from None
        self._size += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._size > self._most:
            raise _too_large(self._most)
        return message


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"more than {most} bytes (gateway.body_bytes)")
