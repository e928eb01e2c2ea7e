"""Coordinator of a deployment of many workers, in Redis: running tasks, stalled tasks, queries.

Running tasks are a hash with one field per task, which names the process that runs it. A task
whose process has no heartbeat (`redis_workers`) is stalled, and another process takes it over.
Locks are in `redis_lock`. Times are of the clock of Redis, so that the clocks of workers need not
agree.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import structlog
from redis import Redis
from typing_extensions import override

from config.errors import TransientError
from config.server_settings import ServerSettings
from config.tracing import (
    context_headers,
    current_context,
    parent_context,
    parse_context,
    untraced,
)
from tasks.broker.redis_connection import PREFIX
from tasks.coordination.protocol import (
    MAX_YIELD_SECONDS,
    Coordinator,
    IngestRequest,
    StalledTask,
)
from tasks.coordination.redis_lock import try_redis_lock
from tasks.coordination.redis_workers import WorkerRegistry
from tasks.policies import POLICIES, resolve_task_name

_RUNNING = PREFIX + "running"
_CRASHES = PREFIX + "deaths:"
_CRASHES_SECONDS = 3600
_DUE = PREFIX + "due:"
_PAUSE = PREFIX + "pause:"
_QUERYING = PREFIX + "querying:"
_QUERYING_MILLISECONDS = 1000
_CHECK_SECONDS = 0.005
_TASK_ERROR = PREFIX + "trouble"
_TASK_ERROR_SECONDS = 120
_REQUEST = PREFIX + "request:"
_REQUEST_SECONDS = 86_400
_GRACE_SECONDS = 60.0
"""A task that runs this much beyond its time limit counts as stalled."""

_START_TASK = """
local before = redis.call('HGET', KEYS[1], ARGV[1])
if before and string.match(before, ' (.*)') ~= ARGV[2] then
    redis.call('INCR', KEYS[2])
    redis.call('EXPIRE', KEYS[2], ARGV[3])
end
redis.call('HSET', KEYS[1], ARGV[1], redis.call('TIME')[1] .. ' ' .. ARGV[2])
return 1 + (redis.call('GET', KEYS[2]) or 0)
"""

_MARK_STALLED = """
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('INCR', KEYS[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 1
"""

QueueDepth = Callable[[str], int]
"""Number of messages that wait in a queue."""


class RedisCoordinator(WorkerRegistry, Coordinator):
    """Coordinates the worker processes of a deployment.

    process: id of this process, as for `WorkerRegistry`; it runs one task at a time. Every call
    raises TransientError while Redis is away.
    """

    def __init__(
        self, client: Redis, settings: ServerSettings, queue_depth: QueueDepth, process: str
    ) -> None:
        super().__init__(client, settings, process)
        self._queue_depth = queue_depth
        self._start_task = client.register_script(_START_TASK)
        self._mark_stalled = client.register_script(_MARK_STALLED)
        self._current: tuple[str, str, str] | None = None
        self._querying = f"{_QUERYING}{socket.gethostname()}"

    @override
    def start_task(self, task: str, task_id: str, ids: Sequence[str]) -> int:
        """Record the task; crashes count as attempts.

        A crash is a message that is delivered again while its task is still recorded by another
        process, or a task found stalled. The same work in several processes at once is no crash,
        nor is a call that is repeated because Redis answered too late.
        """
        trace_id = structlog.contextvars.get_contextvars().get("trace_id", "")
        named = {"worker": self._process, "task": task, "ids": list(ids), "trace_id": trace_id}
        note = json.dumps(named | context_headers(parent_context()))
        self._current = (task, task_id, note)
        with self._connected():
            crashes = _CRASHES + _work_id(task, ids)
            arguments: list[str | int] = [task_id, note, _CRASHES_SECONDS]
            return int(self._start_task(keys=[_RUNNING, crashes], args=arguments))

    @override
    def finish_task(self, task: str, task_id: str, ids: Sequence[str]) -> None:
        self._current = None
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            pipeline.hdel(_RUNNING, task_id)
            pipeline.delete(_CRASHES + _work_id(task, ids))
            pipeline.execute()

    def get_running_tasks(self) -> dict[str, dict[str, Any]]:
        """Return task id -> `worker`, `task`, `ids`, `trace_id` and `since` (seconds since the
        epoch)."""
        with self._connected() as client:
            notes = client.hgetall(_RUNNING)
        found = {}
        for task_id, text in notes.items():
            since, _, note = text.partition(" ")
            found[task_id] = json.loads(note) | {"since": float(since)}
        return found

    @override
    def get_stalled_tasks(self) -> list[StalledTask]:
        found = []
        for task_id, note in self._find_stalled().items():
            crashes = _CRASHES + _work_id(note["task"], note["ids"])
            with self._connected():
                if self._mark_stalled(keys=[_RUNNING, crashes], args=[task_id, _CRASHES_SECONDS]):
                    context = parse_context(note.get("traceparent"), note.get("tracestate"))
                    ids = tuple(note["ids"])
                    found.append(StalledTask(note["task"], ids, note["trace_id"], context))
        return found

    def _find_stalled(self) -> dict[str, dict[str, Any]]:
        running = self.get_running_tasks()
        if not running:
            return {}
        # A process sends a heartbeat before it starts a task, so a process without one has died.
        alive = self._find_alive({note["worker"] for note in running.values()})
        with self._connected() as client:
            now = client.time()[0]
        stalled = {}
        for task_id, note in running.items():
            policy = POLICIES.get(resolve_task_name(note["task"]))
            if policy is None:  # of another version, whose workers take it over
                continue
            limit = policy.time_limit + _GRACE_SECONDS
            if note["worker"] not in alive or now - note["since"] > limit:
                stalled[task_id] = note
        return stalled

    @property
    def needs_reconcile(self) -> bool:
        """Whether the reconciler has work now: a task gave up or is stalled."""
        return bool(self.task_error) or bool(self._find_stalled())

    @override
    def record_ingest_request(self, seq: int, trace_id: str, since: float) -> None:
        """Store the request for a day."""
        context = current_context()
        # Without a trace in the form that earlier versions read.
        traced = tuple(context) if context.traceparent else ()
        note = json.dumps([trace_id, since, *traced])
        with self._connected() as client:
            client.set(f"{_REQUEST}{seq}", note, ex=_REQUEST_SECONDS)

    @override
    def get_ingest_requests(self, seqs: Sequence[int]) -> dict[int, IngestRequest]:
        with self._connected() as client:
            found = client.mget([f"{_REQUEST}{seq}" for seq in seqs]) if seqs else []
        noted = zip(seqs, found, strict=True)
        return {seq: IngestRequest(*json.loads(note)) for seq, note in noted if note}

    @override
    def count_pending(self, task: str) -> int:
        running = sum(1 for note in self.get_running_tasks().values() if note["task"] == task)
        return running + self._queue_depth(POLICIES[task].queue)

    @override
    def add_pending(self, task: str, count: int) -> int:
        """Change only the caller's own task, since pending tasks are counted in the queue and among
        the running ones.

        A negative `count` stops counting the task as running: of several tasks that end at once,
        the last one counts no other. A positive one, on a retry, counts it again.
        """
        self._count_own_task(task, count)
        return self.count_pending(task)

    @override
    def pause(self, name: str, reason: str, seconds: float) -> None:
        with self._connected() as client:
            client.set(_PAUSE + name, reason, px=max(1, int(seconds * 1000)))

    @override
    def get_pause(self, name: str) -> str:
        with self._connected() as client:
            return str(client.get(_PAUSE + name) or "")

    @override
    def find_paused(self, names: Sequence[str]) -> set[str]:
        with self._connected() as client:
            reasons = client.mget([_PAUSE + name for name in names]) if names else []
        return {name for name, reason in zip(names, reasons, strict=True) if reason}

    def _count_own_task(self, task: str, count: int) -> None:
        if self._current is None or self._current[0] != task:
            return
        _, task_id, note = self._current
        with self._connected() as client:
            if count < 0:
                client.hdel(_RUNNING, task_id)
            else:
                now = client.time()[0]
                client.hsetnx(_RUNNING, task_id, f"{now} {note}")

    @override
    @contextmanager
    def track_query(self) -> Iterator[None]:
        """Make bulk work on the same machine wait for the query.

        A lower priority alone does not suffice: processes that share a core slow one another down.
        """
        with self._connected() as client:
            client.set(self._querying, 1, px=_QUERYING_MILLISECONDS)
        try:
            yield
        finally:
            # The first of several queries to end removes the mark for all; this costs the others
            # little.
            with contextlib.suppress(TransientError), self._connected() as client:
                client.delete(self._querying)

    @override
    def yield_to_queries(self) -> None:
        end = time.monotonic() + MAX_YIELD_SECONDS
        with (
            untraced(),
            contextlib.suppress(TransientError),
            self._connected() as client,
        ):
            while client.exists(self._querying) and time.monotonic() < end:
                time.sleep(_CHECK_SECONDS)

    @override
    def try_lock(self, name: str) -> AbstractContextManager[bool]:
        return try_redis_lock(self._client, self._settings, name, self._process)

    @override
    def claim_if_due(self, name: str, seconds: float) -> bool:
        # The value shows whose claim it is, if the answer to the first of repeated calls was lost.
        claim, lifetime = uuid.uuid4().hex, max(1, int(seconds * 1000))
        with self._connected() as client:
            return client.set(_DUE + name, claim, nx=True, get=True, px=lifetime) in (None, claim)

    @property
    def task_error(self) -> str:
        """Reason why a task gave up within the last `_TASK_ERROR_SECONDS`, "" if none did."""
        with self._connected() as client:
            return str(client.get(_TASK_ERROR) or "")

    @task_error.setter
    def task_error(self, reason: str) -> None:
        with self._connected() as client:
            if reason:
                client.set(_TASK_ERROR, reason, ex=_TASK_ERROR_SECONDS)
            else:
                client.delete(_TASK_ERROR)


def _work_id(task: str, ids: Sequence[str]) -> str:
    """Return an id of some work that is the same when the work is sent again in another message."""
    return hashlib.sha256("\0".join([task, *ids]).encode()).hexdigest()[:32]
