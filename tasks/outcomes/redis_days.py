"""Days of the store of outcomes in Redis: which changed, which are pruned, and their usage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis

from config.server_settings import ServerSettings
from tasks.broker.redis_connection import PREFIX, translate_errors

ANSWERED_ON = PREFIX + "answered-on:"
"""A set per day of the queries that were answered."""
REPORTED_ON = PREFIX + "outcomes-on:"
"""A set per day of the queries that outcomes were reported of."""
REPORT_DAYS = PREFIX + "outcome-days"
"""The days on which outcomes were reported."""
VERSIONS = PREFIX + "usage-versions"
"""Version by day; `usage-saved` has that of the stored usage."""
PRUNED = PREFIX + "usage-pruned"
"""Days whose queries are deleted, or are being deleted."""
_SAVED = PREFIX + "usage-saved"
_USAGE = PREFIX + "usage"

_SAVE_DAY = f"""
if redis.call('SISMEMBER', '{PRUNED}', ARGV[1]) == 1 then return 0 end
local saved = tonumber(redis.call('HGET', '{_SAVED}', ARGV[1]) or '0')
if saved >= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', '{_SAVED}', ARGV[1], ARGV[2])
redis.call('HSET', '{_USAGE}', ARGV[1], ARGV[3])
return 1
"""
"""ARGV: day, version, usage."""

_MARK_PRUNED = f"""
local version = redis.call('HGET', '{VERSIONS}', ARGV[1])
if version ~= redis.call('HGET', '{_SAVED}', ARGV[1]) then return 0 end
return redis.call('SADD', '{PRUNED}', ARGV[1])
"""
"""ARGV: day. One that changed since its usage was stored is not marked."""

_MERGE_DAYS = f"""
for _, day in ipairs(redis.call('HKEYS', '{VERSIONS}')) do
    local number = tonumber(day)
    if number >= tonumber(ARGV[1]) and number <= tonumber(ARGV[2])
        and redis.call('SISMEMBER', '{PRUNED}', day) == 0 then return 0 end
end
for _, day in ipairs(redis.call('HKEYS', '{_USAGE}')) do
    local number = tonumber(day)
    if number >= tonumber(ARGV[1]) and number <= tonumber(ARGV[2]) then
        redis.call('HDEL', '{_USAGE}', day)
    end
end
redis.call('HSET', '{_USAGE}', ARGV[1], ARGV[3])
redis.call('SADD', '{PRUNED}', ARGV[1])
return 1
"""
"""ARGV: first day, last day, usage."""


class RedisDays:
    """The days of a store. client: one with binary values."""

    def __init__(self, client: Redis, settings: ServerSettings) -> None:
        self._client: Any = client
        self._settings = settings
        self._save_day = client.register_script(_SAVE_DAY)
        self._mark_pruned = client.register_script(_MARK_PRUNED)
        self._merge_days = client.register_script(_MERGE_DAYS)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """The client; its errors are raised as errors of skillbus."""
        with translate_errors(self._settings):
            yield self._client

    def list_queries(self, kind: str, day: int) -> list[str]:
        """The queries of a day by id; kind: ANSWERED_ON or REPORTED_ON."""
        with self._connected() as client:
            return sorted(one.decode() for one in client.smembers(f"{kind}{day}"))

    def list_report_days(self) -> list[int]:
        """The days on which outcomes were reported, in order."""
        with self._connected() as client:
            return sorted(map(int, client.smembers(REPORT_DAYS)))

    def list_changed(self) -> dict[int, int]:
        """As `OutcomeStore.list_changed_days`."""
        with self._connected() as client:
            versions, saved = client.hgetall(VERSIONS), client.hgetall(_SAVED)
            pruned = client.smembers(PRUNED)
        return {
            int(day): int(version)
            for day, version in sorted(versions.items(), key=lambda one: int(one[0]))
            if int(version) > int(saved.get(day, 0)) and day not in pruned
        }

    def save(self, day: int, version: int, usage: bytes) -> None:
        """As `OutcomeStore.save_day`."""
        with self._connected():
            self._save_day(args=[day, version, usage])

    def get(self, first: int, last: int) -> dict[int, bytes]:
        """As `OutcomeStore.get_days`."""
        with self._connected() as client:
            days = sorted(day for day in map(int, client.hkeys(_USAGE)) if first <= day <= last)
            found = client.hmget(_USAGE, days) if days else []
        return {day: usage for day, usage in zip(days, found, strict=True) if usage is not None}

    def mark_pruned(self, before: int) -> list[int]:
        """Have nothing added any more to the days before `before` whose usage is that of their
        present version; returns all days that are marked."""
        with self._connected() as client:
            for day in sorted(map(int, client.hkeys(VERSIONS))):
                if day < before:
                    self._mark_pruned(args=[day])
            return sorted(map(int, client.smembers(PRUNED)))

    def merge(self, first: int, last: int, usage: bytes) -> None:
        """As `OutcomeStore.merge_days`."""
        with self._connected():
            self._merge_days(args=[first, last, usage])
