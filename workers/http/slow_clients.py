"""uvicorn's HTTP protocol for clients that are slow on purpose, and for too many of them."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from config.inbound_settings import GatewaySettings

OVERLOADED = "crowded"
"""In a request's state: whether more connections are open than `gateway.connections` allows."""

MIN_PROGRESS_BYTES = 65_536
"""How much of a long answer is a part of it."""


class SlowClientProtocol(H11Protocol):
    """Ends connections that wait for ever where uvicorn waits with them: each would hold one of
    those that are allowed.

    A head has to arrive within a time, from its first byte or the connection's begin; of an answer
    a part has to be taken within a time. Where twice the connections are open that are allowed,
    others are closed unheard.
    """

    settings: ClassVar[GatewaySettings]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Begin to wait for a head."""
        super().connection_made(transport)
        # Whatever the system's buffers do not take counts as not taken by the client.
        transport.set_write_buffer_limits(high=0)
        if len(self.connections) > 2 * self.settings.connections:
            transport.abort()
            return
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Wait for the head of the next request from its first byte on."""
        self.app_state[OVERLOADED] = len(self.connections) > self.settings.connections
        super().data_received(data)
        if self._is_idle():
            self._start_head_timer()
        else:
            self._stop_head_timer()

    def pause_writing(self) -> None:
        """Begin to wait for the client to take its answer."""
        super().pause_writing()
        self._start_send_timer()

    def resume_writing(self) -> None:
        """The client has taken all there was."""
        self._stop_send_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_head_timer()
        self._stop_send_timer()
        super().connection_lost(exc)

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
            self.transport.abort()  # to close it would wait for the client once more


def create_http_protocol(settings: GatewaySettings) -> type[SlowClientProtocol]:
    """The protocol as a gateway's settings want it."""
    return type("GatewayProtocol", (SlowClientProtocol,), {"settings": settings})
