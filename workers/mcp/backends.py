"""The ways to have a query answered, and the one from a process of the user's.

What opens them is imported when it is needed: an agent waits for its servers to start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from config.errors import NotFoundError, TransientError
from config.settings import Settings
from skills.events import QueryAsked

if TYPE_CHECKING:
    from workers.backend.base import Backend
    from workers.backend.serve_client import ServeClient


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """Where a query stands. stages: those it has come to, where it is told; bundle: once done."""

    state: str
    stages: tuple[str, ...] = ()
    bundle: dict[str, Any] | None = None
    reason: str = ""


class QueryBackend(Protocol):
    """Takes queries and tells how they stand."""

    def submit_query(self, request: QueryAsked, owner: str) -> str:
        """Accept a query; its id. Raises UsageError for a wrong one, TransientError when busy."""
        ...

    def get_query_status(self, query_id: str) -> QueryStatus:
        """How a query stands now."""
        ...

    def cancel(self, query_id: str) -> None:
        """Have nobody work on a query any further; one that has ended is left as it is."""
        ...


class ServeBackend:
    """Queries over the socket of a running `serve`."""

    def __init__(self, client: ServeClient) -> None:
        self._client = client

    def submit_query(self, request: QueryAsked, owner: str) -> str:
        """Accept a query; on the socket it is the user's, whoever asked here."""
        del owner
        accepted = self._client.post("/v1/queries", request.model_dump(mode="json"))
        return str(accepted["id"])

    def get_query_status(self, query_id: str) -> QueryStatus:
        """How a query stands."""
        data = self._client.get(f"/v1/queries/{query_id}")
        return QueryStatus(
            data["state"],
            tuple(data.get("stages") or ()),
            data.get("bundle"),
            data.get("reason") or "",
        )

    def cancel(self, query_id: str) -> None:
        """End the query; one that `serve` has forgotten is ended."""
        try:
            self._client.delete(f"/v1/queries/{query_id}")
        except NotFoundError:
            return


class BackendSelector:
    """The way from a process of the user's: a running `serve`, else a channel of its own.

    A `serve` that starts later is used from then on; one that ended is done without.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: ServeClient | None = None
        self._backend: Backend | None = None

    def select(self) -> QueryBackend:
        """The way as of now. Raises UsageError when there is no library yet."""
        with self._lock:
            served = self._find_serve()
            if served is not None:
                return served
            from workers.mcp.journal_backend import JournalBackend

            return JournalBackend(self._open_channel(), in_memory=self._is_embedded)

    def warm_up(self) -> None:
        """Have the models loaded where this process answers; where `serve` does, they are."""
        with self._lock:
            if self._find_serve() is None and self._is_embedded:
                self._open_channel().warm_up()

    @property
    def _is_embedded(self) -> bool:
        return not self._settings.distributed

    def _find_serve(self) -> QueryBackend | None:
        if self._client is not None:
            try:
                self._client.get("/v1/status")
            except TransientError:
                self._client.close()
                self._client = None
        if self._client is None:
            from workers.backend.deployment import connect_to_serve

            self._client = connect_to_serve(self._settings)
        return None if self._client is None else ServeBackend(self._client)

    def _open_channel(self) -> Backend:
        if self._backend is None:
            from workers.backend.deployment import open_backend

            backend = open_backend(self._settings, writable=False)
            backend.start()
            self._backend = backend
        return self._backend

    def close(self) -> None:
        """Release what is open."""
        with self._lock:
            if self._client is not None:
                self._client.close()
            if self._backend is not None:
                self._backend.stop()


SelectBackend = Callable[[], QueryBackend]
