"""Switching of a long-lived process between a running `serve` and a backend of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from config.settings import Settings
from workers.backend.factory import find_serve, open_store_backend

if TYPE_CHECKING:
    from workers.backend.protocol import Backend
    from workers.backend.serve import ServeBackend
    from workers.backend.store_backend import StoreBackend


class BackendSelector:
    """Selects a running `serve`, else a read-only backend of this process; threads may share it.

    A `serve` that starts later is used from then on; if it stops, this process answers queries.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._serve: ServeBackend | None = None
        self._own: StoreBackend | None = None

    def select(self) -> Backend:
        """Return the backend to use now; raises UsageError if there is no library yet."""
        with self._lock:
            return self._find_serve() or self._open_own()

    def warm_up(self) -> None:
        """Load what queries need, if this process answers them; `select` waits meanwhile."""
        with self._lock:
            if self._find_serve() is None and not self._settings.distributed:
                self._open_own().warm_up()

    def _find_serve(self) -> ServeBackend | None:
        if self._serve is not None and not self._serve.is_alive():
            self._serve.close()
            self._serve = None
        if self._serve is None:
            self._serve = find_serve(self._settings)
        return self._serve

    def _open_own(self) -> StoreBackend:
        if self._own is None:
            own = open_store_backend(self._settings, writable=False)
            own.start()
            self._own = own
        return self._own

    def close(self) -> None:
        """Close the backends that are open."""
        with self._lock:
            if self._serve is not None:
                self._serve.close()
            if self._own is not None:
                self._own.stop()
