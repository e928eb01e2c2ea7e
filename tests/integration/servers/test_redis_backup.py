"""Reading a Redis database for a backup."""

from __future__ import annotations

from contextlib import closing

import pytest

from config.errors import UsageError
from config.server_settings import ServerSettings
from tasks.broker.redis_backup import RedisBackup
from tasks.broker.redis_connection import PREFIX, connect
from tests.support.servers.redis_database import redis_settings

__all__ = ["redis_settings"]


def test_a_copy_may_take_longer_than_other_calls(redis_settings: ServerSettings) -> None:
    impatient = redis_settings.model_copy(update={"timeout_seconds": 0.2})
    with closing(RedisBackup(impatient)) as backup, connect(redis_settings) as client:
        client.set(f"{PREFIX}kept", "value")
        client.client_pause(1_500)
        assert [one.key for one in backup.read()] == [f"{PREFIX}kept".encode()]


def test_only_a_database_without_a_library_is_empty(redis_settings: ServerSettings) -> None:
    with closing(RedisBackup(redis_settings)) as backup, connect(redis_settings) as client:
        client.set(f"{PREFIX}alive:worker", "[]")
        client.set("of another program", "value")
        backup.require_empty()
        client.set(f"{PREFIX}kept", "value")
        with pytest.raises(UsageError, match=f"is not empty .it has {PREFIX}kept"):
            backup.require_empty()
