"""Heartbeats in Redis that show the live workers, and the processes that take submissions.

Each worker and each of its children keeps a key that expires unless the process renews it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from redis import Redis

from config.server_settings import ServerSettings
from tasks.broker.redis_connection import PREFIX, RedisStore

ALIVE_SECONDS = 6.0
"""Seconds that a process counts as alive after a heartbeat."""

_CHILD_SEPARATOR = "/"
_ALIVE = PREFIX + "alive:"
_CONSUMER = PREFIX + "consumer:"
_ALIVE_MILLISECONDS = int(ALIVE_SECONDS * 1000)


def make_child_id(worker: str, pid: int) -> str:
    """Return the id of a worker's child process."""
    return f"{worker}{_CHILD_SEPARATOR}{pid}"


def get_worker_id(process: str) -> str:
    """Return the id of the worker that a process belongs to; `process` is a worker or a child."""
    return process.partition(_CHILD_SEPARATOR)[0]


class WorkerRegistry(RedisStore):
    """Heartbeats of this process, and a view of all other processes.

    process: id of this process, a worker's or from `make_child_id`. Every call raises
    TransientError while Redis is away.
    """

    def __init__(self, client: Redis, settings: ServerSettings, process: str) -> None:
        super().__init__(client, settings)
        self._process = process

    def beat(self, queues: Sequence[str] = ()) -> None:
        """Count as alive for the next `ALIVE_SECONDS`. queues: the queues from which it takes
        tasks."""
        with self._connected() as client:
            client.set(_ALIVE + self._process, json.dumps(list(queues)), px=_ALIVE_MILLISECONDS)

    def deregister_worker(self) -> None:
        """Count as dead at once, with all children; other workers take over their tasks."""
        own = [name for name in self._alive_processes() if get_worker_id(name) == self._process]
        if own:
            with self._connected() as client:
                client.delete(*(_ALIVE + name for name in own))

    def alive_workers(self) -> list[str]:
        """Return the ids of the live workers, without their children."""
        return [name for name in self._alive_processes() if _CHILD_SEPARATOR not in name]

    def _alive_processes(self) -> list[str]:
        with self._connected() as client:
            keys = client.scan_iter(match=_ALIVE + "*", count=1000)
            return sorted(key.removeprefix(_ALIVE) for key in keys)

    def _find_alive(self, processes: Collection[str]) -> set[str]:
        """Return which of these processes are alive, without a look at all keys."""
        names = list(processes)
        with self._connected() as client:
            beats = client.mget([_ALIVE + name for name in names]) if names else []
        return {name for name, beat in zip(names, beats, strict=True) if beat}

    def get_worker_queues(self) -> dict[str, list[str]]:
        """Return the id of each live worker -> queues from which it takes tasks."""
        names = self.alive_workers()
        with self._connected() as client:
            queues = client.mget([_ALIVE + name for name in names]) if names else []
        return {name: json.loads(text) for name, text in zip(names, queues, strict=True) if text}

    def report_consumer(self, status: Mapping[str, Any]) -> None:
        """Publish the status of this process as a consumer of submissions for `ALIVE_SECONDS`."""
        with self._connected() as client:
            client.set(_CONSUMER + self._process, json.dumps(status), px=_ALIVE_MILLISECONDS)

    def deregister_consumer(self) -> None:
        """Withdraw the status published by `report_consumer`."""
        with self._connected() as client:
            client.delete(_CONSUMER + self._process)

    def list_consumers(self) -> list[dict[str, Any]]:
        """Return the status of each process that takes submissions, as last reported."""
        with self._connected() as client:
            keys = sorted(client.scan_iter(match=_CONSUMER + "*", count=1000))
            statuses = client.mget(keys) if keys else []
        return [json.loads(status) for status in statuses if status]
