"""Sends responses with security headers, and records changes before their callers are answered."""

from __future__ import annotations

from contextlib import suppress

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

from config.errors import PermanentError
from workers.audit.requests import RequestRecorder

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ResponseSender:
    """ASGI `send` that adds headers to the response and keeps its status and location."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 0
        self.location = ""
        self.recorder: RequestRecorder | None = None
        self.is_complete = False

    def is_change(self) -> bool:
        """Return whether the request has changed something, by what its route has noted so far."""
        return self.recorder is not None and self.recorder.is_change()

    async def __call__(self, message: Message) -> None:
        """Send a message of the response."""
        if message["type"] == "http.response.start":
            self.status = int(message["status"])  # the SDK of MCP sends an enum
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.request_id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            self.location = headers.get("location", "")
        is_end = message["type"] == "http.response.body" and not message.get("more_body")
        await self._record_if_due(is_end=is_end)
        self.is_complete = is_end
        await self._send(message)

    async def end(self) -> None:
        """Record a change whose response has no end, since its caller has left."""
        with suppress(PermanentError):  # the log says why
            await self._record_if_due(is_end=True)

    async def _record_if_due(self, *, is_end: bool) -> None:
        recorder = self.recorder
        if recorder is not None and recorder.is_due(is_end=is_end):
            await run_in_threadpool(recorder.record, self.status, self.request_id)
