"""What Redis refuses for its present state is tried again later; nothing is recorded as failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from config.errors import MisconfiguredError, TransientError
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


def test_after_a_failover_the_address_is_connected_to_anew(redis_settings: ServerSettings) -> None:
    """The former primary goes on as a replica, to which the connections would lead for ever."""
    with connect(redis_settings) as connected:
        client: Any = connected
        writes: tuple[Callable[[], object], ...] = (
            lambda: client.set(f"{PREFIX}x", 1),
            lambda: client.pipeline(transaction=True).set(f"{PREFIX}x", 1).execute(),
        )
        for write in writes:
            before = client.client_id()
            client.replicaof("127.0.0.1", 1)
            try:
                with pytest.raises(TransientError), translate_errors(redis_settings):
                    write()
            finally:
                client.replicaof("NO", "ONE")
            write()
            assert client.client_id() != before


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("NOPERM this user has no permissions to run the 'set' command", "give the account"),
        ("CROSSSLOT Keys in request don't hash to the same slot", "not one of a Redis Cluster"),
        ("CLUSTERDOWN The cluster is down", "not one of a Redis Cluster"),
        ("MOVED 3999 127.0.0.1:6381", "not one of a Redis Cluster"),
    ],
)
def test_what_an_operator_has_to_correct_fails_no_work(
    redis_settings: ServerSettings, code: str, advice: str
) -> None:
    with connect(redis_settings) as connected:
        client: Any = connected
        with pytest.raises(MisconfiguredError, match=advice), translate_errors(redis_settings):
            client.eval("return redis.error_reply(ARGV[1])", 0, code)


def test_a_database_that_the_server_does_not_have(redis_settings: ServerSettings) -> None:
    address = redis_settings.redis.rpartition("/")[0]
    absent = redis_settings.model_copy(update={"redis": f"{address}/99"})
    with (
        connect(absent) as client,
        pytest.raises(MisconfiguredError, match="/99: DB index is out of range"),
        translate_errors(absent),
    ):
        client.ping()
