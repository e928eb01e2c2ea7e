"""The activity of a deployment of many processes, in Redis.

What runs is a hash of one field a task. A worker keeps a key of its own alive, and so does each of
its children; what is noted under a process whose key is gone was abandoned, and another takes it
over. Times are of the clock of Redis, whatever those of the workers say.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
from redis import Redis

from config.errors import MisconfiguredError, TransientError
from config.settings import ServerSettings
from tasks.broker.redis_connection import PREFIX, translate_errors
from tasks.coordination.protocol import MAX_YIELD_SECONDS, IngestRequest, StalledTask
from tasks.policies import EMBED_SECTIONS, INGEST, POLICIES

ALIVE_SECONDS = 6.0
"""How long a worker counts as alive after its last sign."""

_CHILD_SEPARATOR = "/"
_ALIVE = PREFIX + "alive:"
_CONSUMER = PREFIX + "consumer:"
_RUNNING = PREFIX + "running"
_CRASHES = PREFIX + "deaths:"
_LOCK = PREFIX + "lock:"
_DUE = PREFIX + "due:"
_QUERYING = PREFIX + "querying:"
_QUERYING_MILLISECONDS = 1000
_CHECK_SECONDS = 0.005
_TROUBLE = PREFIX + "trouble"
_TROUBLE_SECONDS = 120
_REQUEST = PREFIX + "request:"
_REQUEST_SECONDS = 86_400
_CRASHES_SECONDS = 3600
_GRACE_SECONDS = 60.0
_LEASE_MILLISECONDS = int(ALIVE_SECONDS * 1000)

_BEGIN = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
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

_ACQUIRE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[2] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return ''
"""

_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end"

_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"

QueueDepth = Callable[[str], int]
"""How many messages wait in a queue."""


def make_child_id(worker: str, pid: int) -> str:
    """The id of a worker's child."""
    return f"{worker}{_CHILD_SEPARATOR}{pid}"


def get_worker_id(process: str) -> str:
    """The worker that a process, a child or the worker itself, belongs to."""
    return process.partition(_CHILD_SEPARATOR)[0]


class RedisCoordinator:
    """What the workers of a deployment know of one another.

    worker: the id under which this process shows that it lives; a worker's children have ids
    below its own. A process runs one task at a time. Every call raises TransientError while Redis
    is away.
    """

    def __init__(
        self, client: Redis, settings: ServerSettings, queue_depth: QueueDepth, worker: str
    ) -> None:
        self._client: Any = client
        self._settings = settings
        self._queue_depth = queue_depth
        self._worker = worker
        self._begin = client.register_script(_BEGIN)
        self._mark_stalled = client.register_script(_MARK_STALLED)
        self._acquire = client.register_script(_ACQUIRE)
        self._renew = client.register_script(_RENEW)
        self._release = client.register_script(_RELEASE)
        self._current: tuple[str, str, str] | None = None
        self._querying = f"{_QUERYING}{socket.gethostname()}"

    # -- who lives
    def beat(self, queues: Sequence[str] = ()) -> None:
        """Count as alive for the next `ALIVE_SECONDS`, taking tasks from these queues."""
        with translate_errors(self._settings):
            note = json.dumps(list(queues))
            self._client.set(_ALIVE + self._worker, note, px=int(ALIVE_SECONDS * 1000))

    def deregister_worker(self) -> None:
        """Count as gone at once, with all children; what still runs is taken over by others."""
        own = [name for name in self._alive_processes() if get_worker_id(name) == self._worker]
        if own:
            with translate_errors(self._settings):
                self._client.delete(*(_ALIVE + name for name in own))

    def alive_workers(self) -> list[str]:
        """Ids of the workers that live, without their children."""
        return [name for name in self._alive_processes() if _CHILD_SEPARATOR not in name]

    def _alive_processes(self) -> list[str]:
        with translate_errors(self._settings):
            keys = self._client.scan_iter(match=_ALIVE + "*", count=1000)
            return sorted(key.removeprefix(_ALIVE) for key in keys)

    def get_worker_queues(self) -> dict[str, list[str]]:
        """Ids of the workers that live, each with the queues that it takes tasks from."""
        names = self.alive_workers()
        with translate_errors(self._settings):
            notes = self._client.mget([_ALIVE + name for name in names]) if names else []
        return {name: json.loads(note) for name, note in zip(names, notes, strict=True) if note}

    # -- who takes submissions
    def report_consumer(self, status: Mapping[str, Any]) -> None:
        """Tell how this process gets on with submissions; forgotten after `ALIVE_SECONDS`."""
        with translate_errors(self._settings):
            self._client.set(_CONSUMER + self._worker, json.dumps(status), px=_LEASE_MILLISECONDS)

    def deregister_consumer(self) -> None:
        """This process takes no submissions any more."""
        with translate_errors(self._settings):
            self._client.delete(_CONSUMER + self._worker)

    def list_consumers(self) -> list[dict[str, Any]]:
        """What the processes that take submissions told lately."""
        with translate_errors(self._settings):
            keys = sorted(self._client.scan_iter(match=_CONSUMER + "*", count=1000))
            notes = self._client.mget(keys) if keys else []
        return [json.loads(note) for note in notes if note]

    # -- what runs
    def start_task(self, task: str, task_id: str, ids: Sequence[str]) -> int:
        """Note what runs; returns how often this work was begun without coming to an end.

        Work that was begun and is gone has died: a message of its id came again, or it was
        abandoned. The same work in several processes at once is no death.
        """
        trace_id = structlog.contextvars.get_contextvars().get("trace_id", "")
        note = json.dumps(
            {"worker": self._worker, "task": task, "ids": list(ids), "trace_id": trace_id}
        )
        self._current = (task, task_id, note)
        with translate_errors(self._settings):
            deaths = _CRASHES + _work_id(task, ids)
            return int(self._begin(keys=[_RUNNING, deaths], args=[task_id, note, _CRASHES_SECONDS]))

    def finish_task(self, task: str, task_id: str, ids: Sequence[str]) -> None:
        """Take the note away."""
        self._current = None
        with translate_errors(self._settings), self._client.pipeline(transaction=False) as pipeline:
            pipeline.hdel(_RUNNING, task_id)
            pipeline.delete(_CRASHES + _work_id(task, ids))
            pipeline.execute()

    def get_running_tasks(self) -> dict[str, dict[str, Any]]:
        """What runs: task id -> worker, task, ids, trace id, and since when by Redis' clock."""
        with translate_errors(self._settings):
            notes = self._client.hgetall(_RUNNING)
        found = {}
        for task_id, text in notes.items():
            since, _, note = text.partition(" ")
            found[task_id] = json.loads(note) | {"since": float(since)}
        return found

    def get_stalled_tasks(self) -> list[StalledTask]:
        """Tasks of processes that died, and those far beyond their time; each is told once."""
        found = []
        for task_id, note in self._find_stalled().items():
            deaths = _CRASHES + _work_id(note["task"], note["ids"])
            with translate_errors(self._settings):
                if self._mark_stalled(keys=[_RUNNING, deaths], args=[task_id, _CRASHES_SECONDS]):
                    found.append(StalledTask(note["task"], tuple(note["ids"]), note["trace_id"]))
        return found

    def _find_stalled(self) -> dict[str, dict[str, Any]]:
        running = self.get_running_tasks()
        if not running:
            return {}
        # Whoever notes something lives before: who is not among the living now has died.
        alive = set(self._alive_processes())
        with translate_errors(self._settings):
            now = self._client.time()[0]
        return {
            task_id: note
            for task_id, note in running.items()
            if note["worker"] not in alive
            or now - note["since"] > POLICIES[note["task"]].time_limit + _GRACE_SECONDS
        }

    @property
    def needs_reconcile(self) -> bool:
        """Whether the reconciler has something to do at once: a task gave up or was abandoned."""
        return bool(self.task_error) or bool(self._find_stalled())

    # -- what led to what
    def record_ingest_request(self, seq: int, trace_id: str) -> None:
        """Remember a request for a day."""
        note = json.dumps(IngestRequest(trace_id, time.time()))
        with translate_errors(self._settings):
            self._client.set(f"{_REQUEST}{seq}", note, ex=_REQUEST_SECONDS)

    def get_ingest_requests(self, seqs: Sequence[int]) -> dict[int, IngestRequest]:
        """What is remembered of requests, by their number."""
        with translate_errors(self._settings):
            found = self._client.mget([f"{_REQUEST}{seq}" for seq in seqs]) if seqs else []
        noted = zip(seqs, found, strict=True)
        return {seq: IngestRequest(*json.loads(note)) for seq, note in noted if note}

    def _count_pending(self, task: str) -> int:
        running = sum(1 for note in self.get_running_tasks().values() if note["task"] == task)
        return running + self._queue_depth(POLICIES[task].queue)

    @property
    def pending_ingest_tasks(self) -> int:
        """Ingest tasks that run or wait."""
        return self._count_pending(INGEST.name)

    @property
    def pending_embed_tasks(self) -> int:
        """Page tasks that run or wait."""
        return self._count_pending(EMBED_SECTIONS.name)

    def add_ingest_tasks(self, count: int) -> int:
        """How many ingest tasks are under way: the broker and the notes count them.

        A task that counts itself out is noted no longer: of several that end at once, the last
        one sees no other. One that is tried again counts itself in.
        """
        self._count(INGEST.name, count)
        return self.pending_ingest_tasks

    def add_embed_tasks(self, count: int) -> int:
        """How many page tasks are under way."""
        self._count(EMBED_SECTIONS.name, count)
        return self.pending_embed_tasks

    def _count(self, task: str, count: int) -> None:
        if self._current is None or self._current[0] != task:
            return
        _, task_id, note = self._current
        with translate_errors(self._settings):
            if count < 0:
                self._client.hdel(_RUNNING, task_id)
            else:
                now = self._client.time()[0]
                self._client.hsetnx(_RUNNING, task_id, f"{now} {note}")

    @contextmanager
    def track_query(self) -> Iterator[None]:
        """Note that a query is being answered on this machine: bulk work there lets it pass.

        A lower priority alone does not do: processors that share a core slow one another down.
        """
        with translate_errors(self._settings):
            self._client.set(self._querying, 1, px=_QUERYING_MILLISECONDS)
        try:
            yield
        finally:
            # Of several queries the first to end takes the mark of all: they lose a little time.
            with (
                contextlib.suppress(TransientError, MisconfiguredError),
                translate_errors(self._settings),
            ):
                self._client.delete(self._querying)

    def yield_to_queries(self) -> None:
        """Wait while queries are being answered on this machine, but not for ever."""
        end = time.monotonic() + MAX_YIELD_SECONDS
        with (
            contextlib.suppress(TransientError, MisconfiguredError),
            translate_errors(self._settings),
        ):
            while self._client.exists(self._querying) and time.monotonic() < end:
                time.sleep(_CHECK_SECONDS)

    # -- who does what
    @contextmanager
    def try_lock(self, name: str) -> Iterator[bool]:
        """Whether this process alone does the named work; of one that died it is taken over.

        It is leased for `ALIVE_SECONDS` and renewed meanwhile. What another process of the same
        worker left behind is taken at once.
        """
        key, mark = _LOCK + name, f"{self._worker}|{os.getpid()}|{uuid.uuid4().hex}"
        with translate_errors(self._settings):
            holder = self._acquire(keys=[key], args=[mark, "", _LEASE_MILLISECONDS])
            if holder and self._is_dead(holder):
                holder = self._acquire(keys=[key], args=[mark, holder, _LEASE_MILLISECONDS])
        if holder:
            yield False
            return
        done = threading.Event()
        renewal = threading.Thread(target=self._renew_lease, args=(key, mark, done), daemon=True)
        renewal.start()
        try:
            yield True
        finally:
            done.set()
            renewal.join()
            # Where Redis is away the lease runs out.
            with (
                contextlib.suppress(TransientError, MisconfiguredError),
                translate_errors(self._settings),
            ):
                self._release(keys=[key], args=[mark])

    def _renew_lease(self, key: str, mark: str, done: threading.Event) -> None:
        while not done.wait(ALIVE_SECONDS / 4):
            # While Redis is away nobody else can take it either.
            with (
                contextlib.suppress(TransientError, MisconfiguredError),
                translate_errors(self._settings),
            ):
                self._renew(keys=[key], args=[mark, _LEASE_MILLISECONDS])

    def _is_dead(self, holder: str) -> bool:
        worker, pid, _ = holder.rsplit("|", 2)
        if get_worker_id(worker) != get_worker_id(self._worker):
            return False
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        return False

    def claim_if_due(self, name: str, seconds: float) -> bool:
        """Whether nobody has done the named work for so long."""
        with translate_errors(self._settings):
            return bool(self._client.set(_DUE + name, 1, nx=True, px=max(1, int(seconds * 1000))))

    @property
    def task_error(self) -> str:
        """Why a task gave up lately."""
        with translate_errors(self._settings):
            return str(self._client.get(_TROUBLE) or "")

    @task_error.setter
    def task_error(self, reason: str) -> None:
        with translate_errors(self._settings):
            if reason:
                self._client.set(_TROUBLE, reason, ex=_TROUBLE_SECONDS)
            else:
                self._client.delete(_TROUBLE)


def _work_id(task: str, ids: Sequence[str]) -> str:
    """The same work has the same name, whoever sends it again."""
    return hashlib.sha256("\0".join([task, *ids]).encode()).hexdigest()[:32]
