"""Days of the store of outcomes in Redis: changes, pruning and usage."""

from __future__ import annotations

from redis import Redis
from typing_extensions import override

from config.server_settings import ServerSettings
from tasks.broker.redis_connection import RedisStore
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.redis_scripts import (
    ANSWERED_ON,
    MARK_PRUNED,
    MERGE_DAYS,
    PRUNED,
    REPORT_DAYS,
    SAVE_DAY,
    SAVED,
    USAGE,
    VERSIONS,
)

_BATCH = 500


class RedisDays(RedisStore, OutcomeStore):
    """The part of `RedisOutcomeStore` that is about days."""

    def __init__(self, client: Redis, settings: ServerSettings) -> None:
        super().__init__(client, settings)
        self._save_day = client.register_script(SAVE_DAY)
        self._mark_pruned = client.register_script(MARK_PRUNED)
        self._merge_days = client.register_script(MERGE_DAYS)

    def list_queries(self, kind: str, day: int) -> list[str]:
        """Return the queries of a day by id. kind: ANSWERED_ON or REPORTED_ON."""
        with self._connected() as client:
            found = set(client.sscan_iter(f"{kind}{day}", count=_BATCH))
        return sorted(one.decode() for one in found)

    def list_report_days(self) -> list[int]:
        """Return the days on which outcomes were reported, in order."""
        with self._connected() as client:
            return sorted(map(int, client.smembers(REPORT_DAYS)))

    @override
    def list_changed_days(self) -> dict[int, int]:
        with self._connected() as client:
            versions, saved = client.hgetall(VERSIONS), client.hgetall(SAVED)
            pruned = client.smembers(PRUNED)
        return {
            int(day): int(version)
            for day, version in sorted(versions.items(), key=lambda one: int(one[0]))
            if int(version) > int(saved.get(day, 0)) and day not in pruned
        }

    @override
    def save_day(self, day: int, version: int, usage: bytes) -> None:
        with self._connected():
            self._save_day(args=[day, version, usage])

    @override
    def get_days(self, first: int, last: int) -> dict[int, bytes]:
        with self._connected() as client:
            days = sorted(day for day in map(int, client.hkeys(USAGE)) if first <= day <= last)
            found = client.hmget(USAGE, days) if days else []
        return {day: usage for day, usage in zip(days, found, strict=True) if usage is not None}

    def mark_pruned(self, before: int) -> list[int]:
        """Mark the days before `before` whose usage is of their present version, so that nothing is
        added to them any more; returns all marked days that have queries."""
        with self._connected() as client:
            pruned = set(map(int, client.smembers(PRUNED)))
            for day in sorted(set(map(int, client.hkeys(VERSIONS))) - pruned):
                if day < before and self._mark_pruned(args=[day]):
                    pruned.add(day)
            days = sorted(pruned)
            with client.pipeline(transaction=False) as pipeline:
                for day in days:
                    pipeline.exists(f"{ANSWERED_ON}{day}")
                found = pipeline.execute()
        return [day for day, exists in zip(days, found, strict=True) if exists]

    @override
    def merge_days(self, first: int, last: int, usage: bytes) -> None:
        with self._connected():
            self._merge_days(args=[first, last, usage])
