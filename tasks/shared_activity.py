"""The activity of a deployment of many processes, in Redis.

What runs is a hash of one field a task. A worker keeps a key of its own alive; what is noted under
a worker whose key is gone was abandoned, and one process takes it over.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
from redis import Redis

from config.settings import ServerSettings
from tasks.activity import Abandoned, Request
from tasks.policies import INGEST, PAGE, POLICIES
from tasks.redis import PREFIX, translated

ALIVE_SECONDS = 6.0
"""How long a worker counts as alive after its last sign."""

_ALIVE = PREFIX + "alive:"
_RUNNING = PREFIX + "running"
_ATTEMPTS = PREFIX + "attempts:"
_LOCK = PREFIX + "lock:"
_DUE = PREFIX + "due:"
_TROUBLE = PREFIX + "trouble"
_TROUBLE_SECONDS = 120
_REQUEST = PREFIX + "request:"
_REQUEST_SECONDS = 86_400
_ATTEMPTS_SECONDS = 3600
_GRACE_SECONDS = 60.0
_LONGEST_LOCK_SECONDS = 3600

_TAKE = """
local holder = redis.call('GET', KEYS[1])
if holder then
    local worker = string.match(holder, '^(.*)|')
    if redis.call('EXISTS', ARGV[2] .. worker) == 1 then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
return 1
"""

_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"

Depth = Callable[[str], int]
"""How many messages wait in a queue."""


class SharedActivity:
    """What the workers of a deployment know of one another.

    worker: the id under which this process (and its children) shows that it lives. Every call
    raises TransientError while Redis is away.
    """

    def __init__(self, client: Redis, settings: ServerSettings, depth: Depth, worker: str) -> None:
        self._client: Any = client
        self._settings = settings
        self._depth = depth
        self._worker = worker
        self._take = client.register_script(_TAKE)
        self._release = client.register_script(_RELEASE)

    # -- who lives
    def show_life(self, queues: Sequence[str] = ()) -> None:
        """Count as alive for the next `ALIVE_SECONDS`, taking tasks from these queues."""
        with translated(self._settings):
            note = json.dumps(list(queues))
            self._client.set(_ALIVE + self._worker, note, px=int(ALIVE_SECONDS * 1000))

    def end_life(self) -> None:
        """Count as gone at once; what still runs is taken over by others."""
        with translated(self._settings):
            self._client.delete(_ALIVE + self._worker)

    def workers(self) -> list[str]:
        """Ids of the workers that live."""
        with translated(self._settings):
            keys = self._client.scan_iter(match=_ALIVE + "*", count=1000)
            return sorted(key.removeprefix(_ALIVE) for key in keys)

    def queues_of_workers(self) -> dict[str, list[str]]:
        """Ids of the workers that live, each with the queues that it takes tasks from."""
        names = self.workers()
        with translated(self._settings):
            notes = self._client.mget([_ALIVE + name for name in names]) if names else []
        return {name: json.loads(note) for name, note in zip(names, notes, strict=True) if note}

    # -- what runs
    def begun(self, task: str, task_id: str, ids: Sequence[str]) -> int:
        """Note what runs; returns how often it was begun without coming to an end."""
        trace_id = structlog.contextvars.get_contextvars().get("trace_id", "")
        note = json.dumps(
            {"task": task, "ids": list(ids), "since": time.time(), "trace_id": trace_id}
        )
        with translated(self._settings), self._client.pipeline(transaction=False) as pipeline:
            pipeline.hset(_RUNNING, f"{self._worker}|{task_id}", note)
            pipeline.incr(_ATTEMPTS + _name_of(task, ids))
            pipeline.expire(_ATTEMPTS + _name_of(task, ids), _ATTEMPTS_SECONDS)
            return int(pipeline.execute()[1])

    def ended(self, task: str, task_id: str, ids: Sequence[str]) -> None:
        """Take the note away."""
        with translated(self._settings), self._client.pipeline(transaction=False) as pipeline:
            pipeline.hdel(_RUNNING, f"{self._worker}|{task_id}")
            pipeline.delete(_ATTEMPTS + _name_of(task, ids))
            pipeline.execute()

    def running(self) -> dict[str, dict[str, Any]]:
        """What runs: worker|task id -> task, ids, since when, and the trace id."""
        with translated(self._settings):
            return {name: json.loads(note) for name, note in self._client.hgetall(_RUNNING).items()}

    def abandoned(self) -> list[Abandoned]:
        """Tasks of workers that died, and those far beyond their time; each is told once."""
        alive, now, found = set(self.workers()), time.time(), []
        for name, note in self.running().items():
            late = now - note["since"] > POLICIES[note["task"]].seconds + _GRACE_SECONDS
            if name.partition("|")[0] in alive and not late:
                continue
            with translated(self._settings):
                if self._client.hdel(_RUNNING, name):
                    trace_id = note.get("trace_id", "")
                    found.append(Abandoned(note["task"], tuple(note["ids"]), trace_id))
        return found

    # -- what led to what
    def note_request(self, seq: int, trace_id: str) -> None:
        """Remember a request for a day."""
        note = json.dumps(Request(trace_id, time.time()))
        with translated(self._settings):
            self._client.set(f"{_REQUEST}{seq}", note, ex=_REQUEST_SECONDS)

    def requests(self, seqs: Sequence[int]) -> dict[int, Request]:
        """What is remembered of requests, by their number."""
        with translated(self._settings):
            found = self._client.mget([f"{_REQUEST}{seq}" for seq in seqs]) if seqs else []
        noted = zip(seqs, found, strict=True)
        return {seq: Request(*json.loads(note)) for seq, note in noted if note}

    def _under_way(self, task: str) -> int:
        running = sum(1 for note in self.running().values() if note["task"] == task)
        return running + self._depth(POLICIES[task].queue)

    @property
    def ingesting(self) -> int:
        """Ingest tasks that run or wait."""
        return self._under_way(INGEST.name)

    @property
    def paging(self) -> int:
        """Page tasks that run or wait."""
        return self._under_way(PAGE.name)

    def ingest(self, count: int) -> int:
        """How many other ingest tasks are under way: the broker and the notes count them."""
        return max(0, self.ingesting + min(count, 0))

    def page(self, count: int) -> int:
        """How many other page tasks are under way."""
        return max(0, self.paging + min(count, 0))

    @contextmanager
    def query(self) -> Iterator[None]:
        """Nothing to note: bulk work has processes of its own, with a lower priority."""
        yield

    def let_queries_pass(self) -> None:
        """Nothing to wait for."""

    # -- who does what
    @contextmanager
    def exclusive(self, name: str) -> Iterator[bool]:
        """Whether this process alone does the named work; of one that died it is taken over."""
        mark = f"{self._worker}|{uuid.uuid4().hex}"
        with translated(self._settings):
            first = self._take(keys=[_LOCK + name], args=[mark, _ALIVE, _LONGEST_LOCK_SECONDS])
        try:
            yield bool(first)
        finally:
            if first:
                with translated(self._settings):
                    self._release(keys=[_LOCK + name], args=[mark])

    def is_due(self, name: str, seconds: float) -> bool:
        """Whether nobody has done the named work for so long."""
        with translated(self._settings):
            return bool(self._client.set(_DUE + name, 1, nx=True, px=max(1, int(seconds * 1000))))

    @property
    def trouble(self) -> str:
        """Why a task gave up lately."""
        with translated(self._settings):
            return str(self._client.get(_TROUBLE) or "")

    @trouble.setter
    def trouble(self, reason: str) -> None:
        with translated(self._settings):
            if reason:
                self._client.set(_TROUBLE, reason, ex=_TROUBLE_SECONDS)
            else:
                self._client.delete(_TROUBLE)


def _name_of(task: str, ids: Sequence[str]) -> str:
    """The same work has the same name, whoever sends it again."""
    return hashlib.sha256("\0".join([task, *ids]).encode()).hexdigest()[:32]
