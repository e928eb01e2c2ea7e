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
    from workers.backend.channel import Channel
    from workers.backend.serve_client import ServeClient


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a query stands. stages: those it has come to, where it is told; bundle: once done."""

    state: str
    stages: tuple[str, ...] = ()
    bundle: dict[str, Any] | None = None
    reason: str = ""


class Way(Protocol):
    """Takes queries and tells how they stand."""

    def ask(self, asked: QueryAsked, owner: str) -> str:
        """Accept a query; its id. Raises UsageError for a wrong one, TransientError when busy."""
        ...

    def look(self, query_id: str) -> Standing:
        """How a query stands now."""
        ...

    def cancel(self, query_id: str) -> None:
        """Have nobody work on a query any further; one that has ended is left as it is."""
        ...


class ServedWay:
    """Queries over the socket of a running `serve`."""

    def __init__(self, client: ServeClient) -> None:
        self._client = client

    def ask(self, asked: QueryAsked, owner: str) -> str:
        """Accept a query; on the socket it is the user's, whoever asked here."""
        del owner
        accepted = self._client.post("/v1/queries", asked.model_dump(mode="json"))
        return str(accepted["id"])

    def look(self, query_id: str) -> Standing:
        """How a query stands."""
        told = self._client.get(f"/v1/queries/{query_id}")
        return Standing(
            told["state"],
            tuple(told.get("stages") or ()),
            told.get("bundle"),
            told.get("reason") or "",
        )

    def cancel(self, query_id: str) -> None:
        """End the query; one that `serve` has forgotten is ended."""
        try:
            self._client.delete(f"/v1/queries/{query_id}")
        except NotFoundError:
            return


class HomeWays:
    """The way from a process of the user's: a running `serve`, else a channel of its own.

    A `serve` that starts later is used from then on; one that ended is done without.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: ServeClient | None = None
        self._channel: Channel | None = None

    def find(self) -> Way:
        """The way as of now. Raises UsageError when there is no library yet."""
        with self._lock:
            served = self._served()
            if served is not None:
                return served
            from workers.mcp.channel_way import ChannelWay

            return ChannelWay(self._own(), forgets=self._alone)

    def warm_up(self) -> None:
        """Have the models loaded where this process answers; where `serve` does, they are."""
        with self._lock:
            if self._served() is None and self._alone:
                self._own().warm_up()

    @property
    def _alone(self) -> bool:
        return not self._settings.distributed

    def _served(self) -> Way | None:
        if self._client is not None:
            try:
                self._client.get("/v1/status")
            except TransientError:
                self._client.close()
                self._client = None
        if self._client is None:
            from workers.backend.deployment import find_serve

            self._client = find_serve(self._settings)
        return None if self._client is None else ServedWay(self._client)

    def _own(self) -> Channel:
        if self._channel is None:
            from workers.backend.deployment import open_channel

            channel = open_channel(self._settings, writable=False)
            channel.start()
            self._channel = channel
        return self._channel

    def close(self) -> None:
        """Release what is open."""
        with self._lock:
            if self._client is not None:
                self._client.close()
            if self._channel is not None:
                self._channel.stop()


FindWay = Callable[[], Way]
