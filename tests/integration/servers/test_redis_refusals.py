"""What Redis refuses for its present state is tried again later; nothing is recorded as failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from config.errors import TransientError
from config.server_settings import ServerSettings
from tasks.broker.redis_connection import PREFIX, connect, translate_errors
from tests.support.servers.redis_database import redis_settings

__all__ = ["redis_settings"]


@pytest.mark.parametrize(("setting", "value"), [("maxmemory", 1), ("min-replicas-to-write", 1)])
def test_a_write_that_is_refused_for_now_is_transient(
    redis_settings: ServerSettings, setting: str, value: int
) -> None:
    key = f"{PREFIX}x"
    with connect(redis_settings) as connected:
        client: Any = connected  # its types are those of all protocol versions
        before = client.config_get(setting)[setting]
        writes: tuple[Callable[[], object], ...] = (
            lambda: client.set(key, 1),
            lambda: client.pipeline(transaction=True).set(key, 1).execute(),
            lambda: client.pipeline(transaction=False).set(key, 1).execute(),
            lambda: client.eval("return redis.call('SET', KEYS[1], 1)", 1, key),
        )
        client.config_set(setting, value)
        try:
            for write in writes:
                with pytest.raises(TransientError), translate_errors(redis_settings):
                    write()
        finally:
            client.config_set(setting, before)
