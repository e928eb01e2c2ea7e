"""HTTP protocol for uvicorn that disconnects slow clients and limits connections."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from config.inbound_settings import GatewaySettings

OVERLOADED = "overloaded"
"""Key of the request state: whether more than `gateway.connections` connections are open."""

STOPPING = "stopping"
"""Key of the request state: an event that is set once the server is asked to stop, for responses
that do not end by themselves."""

MIN_PROGRESS_BYTES = 65_536
"""Bytes of a response that a client has to read in every `gateway.send_seconds`."""


class SlowClientProtocol(H11Protocol):
    """Closes connections of slow clients, for which uvicorn would wait forever.

    The head of a request must arrive within `gateway.head_seconds` of its first byte or of the
    connection's start. The client must read at least `MIN_PROGRESS_BYTES` of a response, or all of
    it, in every `gateway.send_seconds`. Above `gateway.connections`, the access checks answer 503;
    above twice that number, new connections are closed at once.
    """

    settings: ClassVar[GatewaySettings]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app_state.setdefault(STOPPING, asyncio.Event())
        self._head_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Start the timer of the first head."""
        super().connection_made(transport)
        # Without a buffer in uvicorn, bytes that do not fit into the system's
        # buffers count as unread.
        transport.set_write_buffer_limits(high=0)
        if len(self.connections) > 2 * self.settings.connections:
            transport.abort()
            return
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Start the timer of a head with its first byte; stop it with its last."""
        self.app_state[OVERLOADED] = len(self.connections) > self.settings.connections
        super().data_received(data)
        if self._is_idle():
            self._start_head_timer()
        else:
            self._stop_head_timer()

    def pause_writing(self) -> None:
        """Start the timer of the response."""
        super().pause_writing()
        self._start_send_timer()

    def resume_writing(self) -> None:
        """Stop the timer: the client has read everything so far."""
        self._stop_send_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_head_timer()
        self._stop_send_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End open streams, then close the connection when its response is complete."""
        self.app_state[STOPPING].set()
        super().shutdown()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.settings.head_seconds, self._close_idle)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_idle(self) -> None:
        self._head_timer = None
        if self._is_idle() and not self.transport.is_closing():
            self.transport.close()

    def _start_send_timer(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._send_timer = self.loop.call_later(
            self.settings.send_seconds, self._check_send_progress, left
        )

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _check_send_progress(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() >= MIN_PROGRESS_BYTES:
            self._start_send_timer()
        else:
            self.transport.abort()  # `close` would wait for the client to read the rest


def create_http_protocol(settings: GatewaySettings) -> type[SlowClientProtocol]:
    """Return the protocol class for a gateway with these settings."""
    return type("GatewayProtocol", (SlowClientProtocol,), {"settings": settings})
