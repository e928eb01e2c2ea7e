"""Ends responses, such as streams, whose caller loses access before they are complete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Send

WATCH_SECONDS = 1.0

_DISCONNECT: Message = {"type": "http.disconnect"}


class AccessWatch:
    """Wraps the messages of one request, and checks its caller every `WATCH_SECONDS`.

    The check runs while the context is open. Once access is lost, the application sees a client
    that has disconnected, even before the body of the request is complete. A response that streams,
    or has not begun, is then sent no further. A response to a change is sent in full: its caller
    has to know what was done.

    has_access: checks the caller again. is_change: whether the request has changed something.
    """

    def __init__(
        self,
        has_access: Callable[[], Awaitable[bool]],
        is_change: Callable[[], bool],
        receive: Receive,
        send: Send,
    ) -> None:
        self._has_access = has_access
        self._is_change = is_change
        self._receive = receive
        self._send = send
        self._lost = asyncio.Event()
        self._is_body_complete = False
        self._is_body_cut = False
        self._is_whole = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def is_lost(self) -> bool:
        """Whether access was lost."""
        return self._lost.is_set()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            has_access = False
            try:
                has_access = await self._has_access()
            finally:  # also after any error
                if not has_access:
                    self._lost.set()
            if not has_access:
                return

    async def receive(self) -> Message:
        """Return the client's next message, or a disconnect once access is lost."""
        if self.is_lost:  # without waiting: a caller that only polls cancels a wait
            return self._disconnect()
        receiving = asyncio.ensure_future(self._receive())
        losing = asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait((receiving, losing), return_when=asyncio.FIRST_COMPLETED)
            if self.is_lost:
                return self._disconnect()
            message = receiving.result()
            self._is_body_complete = not message.get("more_body", False)
            return message
        finally:
            receiving.cancel()
            losing.cancel()

    def _disconnect(self) -> Message:
        self._is_body_cut = not self._is_body_complete
        return _DISCONNECT

    async def send(self, message: Message) -> None:
        """Send a message of the response, if the caller may still have it."""
        if message["type"] == "http.response.start":
            if self.is_lost and (self._is_body_cut or not self._is_change()):
                return
            # A response with a `Content-Length` cannot end early.
            self._is_whole = self._is_change() or "content-length" in Headers(
                raw=message["headers"]
            )
        elif self.is_lost and not self._is_whole:
            return
        await self._send(message)
