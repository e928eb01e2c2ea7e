"""uvicorn's HTTP protocol for clients that are slow on purpose."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""In which the head of a request has to arrive, from its first byte or the connection's begin."""


class PatientProtocol(H11Protocol):
    """Closes a connection whose request has no complete head after a while.

    uvicorn waits for ever: each such connection would hold one of those that are allowed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Wait for the head of the next request from its first byte on."""
        super().data_received(data)
        if self._is_idle():
            self._await_head()
        else:
            self._head_is_there()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._head_is_there()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _head_is_there(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if self._is_idle() and not self.transport.is_closing():
            self.transport.close()
