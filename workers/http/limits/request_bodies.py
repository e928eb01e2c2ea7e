"""Bounds on the size and duration of request bodies."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from config.inbound_settings import GatewaySettings, WebhookSettings

_MAX_DIGITS = 12

BodySettings = GatewaySettings | WebhookSettings


def parse_content_length(headers: Mapping[str, str]) -> float:
    """Return the `Content-Length` of a request, 0 without one, infinity for over 12 digits.

    Raises HTTPException (400) if it is not a number.
    """
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise HTTPException(400, "content-length: not a number")
    return int(length) if len(length) <= _MAX_DIGITS else math.inf


def check_content_length(headers: Mapping[str, str], settings: BodySettings) -> None:
    """Raise HTTPException for a `Content-Length` that is too large or not a number."""
    if parse_content_length(headers) > settings.body_bytes:
        raise _too_large(settings)


class BoundedBody:
    """ASGI `receive` that bounds a body's size (413) and the time until it is complete (408)."""

    def __init__(self, receive: Receive, settings: BodySettings) -> None:
        self._receive = receive
        self._settings = settings
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
            seconds, name = self._settings.body_seconds, _name_setting(self._settings, "seconds")
            detail = f"the body is incomplete after {seconds:g} s ({name})"
            raise HTTPException(408, detail) from None
        self._size += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._size > self._settings.body_bytes:
            raise _too_large(self._settings)
        return message


def _too_large(settings: BodySettings) -> HTTPException:
    name = _name_setting(settings, "bytes")
    return HTTPException(413, f"more than {settings.body_bytes} bytes ({name})")


def _name_setting(settings: BodySettings, unit: str) -> str:
    group = "webhooks" if isinstance(settings, WebhookSettings) else "gateway"
    return f"{group}.body_{unit}"
