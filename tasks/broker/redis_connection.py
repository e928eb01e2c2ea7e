"""Connections to Redis, and the translation of its errors into those of skillbus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.client import Pipeline
from redis.exceptions import (
    AuthenticationError,
    ClusterCrossSlotError,
    ClusterError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as NotConnectedError
from redis.exceptions import TimeoutError as TooSlowError
from redis.retry import Retry
from typing_extensions import override

from config.errors import MisconfiguredError, PermanentError, TransientError
from config.secrets import read_secret, strip_password
from config.server_settings import ServerSettings
from config.tracing import OpenSpan, span

PREFIX = "skillbus:"
"""Prefix of every key of skillbus; Celery's keys have none."""

_MAX_RETRIES = 2
_LONG_CALL_SECONDS = 600.0
_PUBLIC_UNREACHABLE = "Redis does not answer"
_PUBLIC_READ_ONLY = "Redis does not take writes now"
_PUBLIC_REFUSED = "Redis refused a command"
_PASSING_ERRORS = (MasterDownError, OutOfMemoryError, ReadOnlyError)
_PASSING_CODES = frozenset({"BUSY", "MISCONF", "NOREPLICAS"})
_CLUSTER_ERRORS = (ClusterCrossSlotError, ClusterError, MovedError)
_BAD_DATABASE = ("DB index is out of range", "SELECT is not allowed in cluster mode")


class _TracedRedis(Redis):
    """A client whose calls are spans of a trace, without keys and values."""

    @override
    def execute_command(self, *args: Any, **options: Any) -> Any:
        with _start_span(self, str(args[0])), _reconnecting(self):
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # redis declares no types

    @override
    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Pipeline:
        return _TracedPipeline(
            self.connection_pool, self.response_callbacks, transaction, shard_hint
        )


class _TracedPipeline(Pipeline):
    @override
    def execute(self, raise_on_error: bool = True) -> list[Any]:
        with _start_span(self, "PIPELINE"), _reconnecting(self):
            return super().execute(raise_on_error)


@contextmanager
def _reconnecting(client: Redis) -> Iterator[None]:
    """Close the connections if the server takes no writes because it is a replica: after a
    failover, the address names another server."""
    try:
        yield
    except ReadOnlyError:
        client.connection_pool.disconnect(inuse_connections=False)
        raise


def _start_span(client: Redis, operation: str) -> OpenSpan:
    kwargs = client.connection_pool.connection_kwargs
    attributes = {
        "db.system.name": "redis",
        "db.operation.name": operation,
        "server.address": str(kwargs.get("host", "")),
    }
    return span(f"redis {operation}", attributes, "client")


def connect(settings: ServerSettings, *, binary: bool = False, long_calls: bool = False) -> Redis:
    """Return a client that connects on first use; a forked process needs one of its own.

    binary: values are bytes, not text. long_calls: a call may take ten minutes, and is not
    repeated, since the server may still be working on it.

    Raises MisconfiguredError for an unreadable password file.
    """
    password = read_secret(settings.redis_password_file, "servers.redis_password_file")
    # For the default user of redis:// URLs: a password without a user name is that of requirepass.
    return _TracedRedis.from_url(
        settings.redis,
        password=password,
        decode_responses=not binary,
        socket_timeout=_LONG_CALL_SECONDS if long_calls else settings.timeout_seconds,
        socket_connect_timeout=settings.timeout_seconds,
        socket_keepalive=True,
        health_check_interval=30,
        retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), 0 if long_calls else _MAX_RETRIES),
        client_name="skillbus",
    )


@contextmanager
def translate_errors(settings: ServerSettings) -> Iterator[None]:
    """Raise errors of a client of `servers.redis` as TransientError, MisconfiguredError or
    PermanentError."""
    with translate_errors_at(strip_password(settings.redis), "servers.redis_password_file"):
        yield


@contextmanager
def translate_errors_at(address: str, secret: str) -> Iterator[None]:
    """Translate errors as `translate_errors` does, for any server.

    address: without a password. secret: name of the setting with the password file.
    """
    where = f"Redis at {address}"
    try:
        yield
    except AuthenticationError as error:
        raise MisconfiguredError(f"{where}: {error}; see {secret}") from None
    except NoPermissionError as error:
        raise MisconfiguredError(f"{where}: {error}; give the account this right") from error
    except (NotConnectedError, TooSlowError) as error:
        raise TransientError(
            f"{where} does not answer: {error}", public_message=_PUBLIC_UNREACHABLE
        ) from error
    except RedisError as error:
        if _is_passing(error):
            raise TransientError(
                f"{where} does not take writes now: {error}", public_message=_PUBLIC_READ_ONLY
            ) from error
        if isinstance(error, _CLUSTER_ERRORS) or str(error) in _BAD_DATABASE:
            raise MisconfiguredError(
                f"{where}: {error}; name a server that has all keys, not one of a Redis Cluster, "
                "and a database that it has"
            ) from error
        raise PermanentError(f"{where}: {error}", public_message=_PUBLIC_REFUSED) from error


class RedisStore:
    """Base class of stores in Redis: a client, and the translation of its errors."""

    def __init__(self, client: Redis, settings: ServerSettings) -> None:
        self._client: Any = client
        self._settings = settings

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Yield the client; translates its errors into errors of skillbus."""
        with translate_errors(self._settings):
            yield self._client

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _is_passing(error: RedisError) -> bool:
    """Return whether Redis refused a command for its present state, such as a full memory."""
    # A pipeline puts the command in front of the message of the server.
    code = str(error).rpartition("caused error: ")[2].partition(" ")[0]
    return isinstance(error, _PASSING_ERRORS) or code in _PASSING_CODES


def health(settings: ServerSettings) -> dict[str, Any]:
    """Return `version`, `used_bytes`, and whether Redis `evicts` keys or `persists` data.

    A server that evicts or does not persist would lose accepted work. Raises TransientError or
    MisconfiguredError.
    """
    with translate_errors(settings), connect(settings) as client:
        info: Any = client.info()
        return {
            "version": info["redis_version"],
            "evicts": info.get("maxmemory_policy", "noeviction") != "noeviction",
            "persists": bool(int(info.get("aof_enabled", 0))),
            "used_bytes": int(info["used_memory"]),
        }


def measure_clock_skew(settings: ServerSettings) -> float:
    """Return the seconds by which the clock of Redis is ahead of this machine's; negative if
    behind."""
    with translate_errors(settings), connect(settings) as client:
        client.ping()  # connects, so that only the second request is timed
        before = time.time()
        seconds, micros = cast("tuple[int, int]", client.time())
        return seconds + micros / 1e6 - (before + time.time()) / 2


def rewrite_log(client: Any) -> None:
    """Make Redis rewrite its append-only file in the background, without deleted values.

    Does nothing if a rewrite is running, or the account may not request it.
    """
    with suppress(ResponseError):
        client.bgrewriteaof()
