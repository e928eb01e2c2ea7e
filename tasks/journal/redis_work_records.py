"""Records of work in Redis: a list for each trace, and a hash for each minute."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from typing_extensions import override

from tasks.broker.redis_connection import PREFIX
from tasks.journal.redis_dead_letters import RedisDeadLetters
from tasks.journal.work_records import (
    KEPT_SECONDS,
    MAX_RUNS,
    CountKind,
    TaskRun,
    WorkMinute,
    WorkRecords,
    build_minute,
    count_run,
)

_RUNS = PREFIX + "task-runs:"
_MINUTE = PREFIX + "minute:"


class RedisWorkRecords(RedisDeadLetters, WorkRecords):
    """Records of work, which Redis deletes when they expire."""

    @override
    def add_task_run(self, run: TaskRun, trace_ids: Sequence[str]) -> None:
        text = json.dumps(asdict(run), ensure_ascii=False)
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            for trace_id in dict.fromkeys(trace_ids):
                pipeline.rpush(_RUNS + trace_id, text)
                pipeline.ltrim(_RUNS + trace_id, 0, MAX_RUNS - 1)
                pipeline.expire(_RUNS + trace_id, KEPT_SECONDS)
            _count(pipeline, count_run(run))
            pipeline.execute()

    @override
    def list_task_runs(self, trace_id: str) -> list[TaskRun]:
        with self._connected() as client:
            found = client.lrange(_RUNS + trace_id, 0, -1)
        return sorted((TaskRun(**json.loads(text)) for text in found), key=lambda one: one.ended)

    def _delete_reasons(self) -> None:
        """Delete the runs that have a reason."""
        with self._connected() as client:
            for key in client.scan_iter(_RUNS + "*", count=1_000):
                for text in client.lrange(key, 0, -1):
                    if json.loads(text)["reason"]:
                        client.lrem(key, 0, text)

    @override
    def count_work(self, counts: Mapping[tuple[CountKind, str], int]) -> None:
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            _count(pipeline, counts)
            pipeline.execute()

    @override
    def list_work_minutes(self, since: float) -> list[WorkMinute]:
        now = int(time.time() // 60) * 60
        first = max(-(-int(since) // 60) * 60, now - KEPT_SECONDS)
        minutes = range(first, now + 60, 60)
        found = self._read_hashes([f"{_MINUTE}{minute}" for minute in minutes])
        return [
            build_minute(minute, {_parse_name(name): int(count) for name, count in values.items()})
            for minute, values in zip(minutes, found, strict=True)
            if values
        ]


def _count(pipeline: Any, counts: Mapping[tuple[CountKind, str], int]) -> None:
    key = f"{_MINUTE}{int(time.time() // 60) * 60}"
    for (kind, name), count in counts.items():
        pipeline.hincrby(key, f"{kind} {name}", count)
    pipeline.expire(key, KEPT_SECONDS)


def _parse_name(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(" ")
    return kind, name
