"""Copies the keys of skillbus out of a Redis database and into an empty one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from config.errors import UsageError
from config.secrets import strip_password
from config.server_settings import ServerSettings
from tasks.broker.redis_connection import PREFIX, connect, translate_errors

PASSING_KEYS = tuple(
    PREFIX + name
    for name in (
        "alive:",
        "consumer:",
        "deaths:",
        "due:",
        "lock:",
        "pause:",
        "querying:",
        "running",
        "trouble",
    )
)
"""Keys, or prefixes of keys, of the current state of processes; a copy leaves them out."""

_BATCH_KEYS = 500

_DUMP = """
local found, seen, cursor = {}, {}, '0'
repeat
    local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1] .. '*', 'COUNT', 1000)
    cursor = page[1]
    for _, key in ipairs(page[2]) do
        local passing = seen[key]
        for place = 2, #ARGV do
            passing = passing or string.sub(key, 1, #ARGV[place]) == ARGV[place]
        end
        if not passing then
            seen[key] = true
            found[#found + 1] = {key, redis.call('DUMP', key), redis.call('PTTL', key)}
        end
    end
until cursor == '0'
return found
"""
"""Lua script that reads all keys; it is atomic, so that a job and the sets that list it agree."""


class StoredKey(NamedTuple):
    """A key with its value in the form of DUMP, and its time to live in ms, 0 without one."""

    key: bytes
    value: bytes
    ttl_ms: int


class RedisBackup:
    """Reads and writes the database that `servers.redis` names. Calls raise TransientError while
    Redis is away."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._client: Any = connect(settings, binary=True, long_calls=True)

    def read(self) -> list[StoredKey]:
        """Return all keys except PASSING_KEYS, as of one moment; Redis does nothing else
        meanwhile."""
        with translate_errors(self._settings):
            found = self._client.eval(_DUMP, 0, PREFIX, *PASSING_KEYS)
        return [StoredKey(key, value, max(0, ttl)) for key, value, ttl in found]

    def require_empty(self) -> None:
        """Raise UsageError if the database holds keys of skillbus."""
        passing = tuple(name.encode() for name in PASSING_KEYS)
        with translate_errors(self._settings):
            keys = self._client.scan_iter(match=PREFIX + "*", count=1000)
            found = next((key for key in keys if not key.startswith(passing)), None)
        if found is not None:
            raise UsageError(
                f"Redis at {strip_password(self._settings.redis)} is not empty (it has "
                f"{found.decode(errors='replace')}): restore into a database without a library"
            )

    def write(self, keys: Iterable[StoredKey]) -> int:
        """Write keys; returns their number.

        Raises PermanentError for a key that exists, and for a value that Redis cannot read, such as
        one of a newer version.
        """
        batch: list[StoredKey] = []
        count = 0
        for one in keys:
            batch.append(one)
            count += 1
            if len(batch) == _BATCH_KEYS:
                self._write_batch(batch)
                batch = []
        self._write_batch(batch)
        return count

    def _write_batch(self, batch: Sequence[StoredKey]) -> None:
        with (
            translate_errors(self._settings),
            self._client.pipeline(transaction=False) as pipeline,
        ):
            for one in batch:
                pipeline.restore(one.key, one.ttl_ms, one.value)
            pipeline.execute()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
