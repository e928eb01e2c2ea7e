"""The connection to Redis, with its errors in our terms."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as NotConnectedError
from redis.exceptions import TimeoutError as TooSlowError
from redis.retry import Retry

from config.errors import MisconfiguredError, PermanentError, TransientError
from config.secrets import read_secret, strip_password
from config.settings import ServerSettings

PREFIX = "skillbus:"
"""How every key begins that is ours and not Celery's."""

_QUICK_RETRIES = 2


def connect(settings: ServerSettings) -> Redis:
    """A client that connects on first use; a process makes its own after a fork.

    Raises SetupError for an address or a password file that cannot be used.
    """
    password = read_secret(settings.redis_password_file, "servers.redis_password_file")
    # redis:// brings a default user; a password without a user is that of requirepass
    try:
        return Redis.from_url(
            settings.redis,
            password=password,
            decode_responses=True,
            socket_timeout=settings.timeout_seconds,
            socket_connect_timeout=settings.timeout_seconds,
            socket_keepalive=True,
            health_check_interval=30,
            retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), _QUICK_RETRIES),
            client_name="skillbus",
        )
    except ValueError as error:
        raise MisconfiguredError(
            f"servers.redis: {strip_password(settings.redis)}: {error}"
        ) from None


@contextmanager
def translate_errors(settings: ServerSettings) -> Iterator[None]:
    """Raise what a client raises as one of our errors, naming the server."""
    with translate_errors_at(strip_password(settings.redis), "servers.redis_password_file"):
        yield


@contextmanager
def translate_errors_at(address: str, secret: str) -> Iterator[None]:
    """The same for any server: its address without a password, the setting with the password's
    file."""
    where = f"Redis at {address}"
    try:
        yield
    except AuthenticationError as error:
        raise MisconfiguredError(f"{where}: {error}; see {secret}") from None
    except (BusyLoadingError, ReadOnlyError) as error:
        raise TransientError(f"{where} does not take writes now: {error}") from error
    except (NotConnectedError, TooSlowError) as error:
        raise TransientError(f"{where} does not answer: {error}") from error
    except ResponseError as error:
        raise _refused(where, error, secret) from error
    except RedisError as error:
        raise PermanentError(f"{where}: {error}") from error


def _refused(where: str, error: ResponseError, secret: str) -> Exception:
    text = str(error)
    if text.startswith("NOAUTH") or text.startswith("WRONGPASS"):
        return MisconfiguredError(f"{where}: {text}; see {secret}")
    if text.startswith(("OOM", "MISCONF", "LOADING", "READONLY")):
        return TransientError(f"{where} does not take writes now: {text}")
    return PermanentError(f"{where}: {text}")


def health(settings: ServerSettings) -> dict[str, Any]:
    """Version, and what would lose accepted work; raises TransientError or SetupError."""
    with translate_errors(settings), connect(settings) as client:
        info: Any = client.info()
        return {
            "version": info["redis_version"],
            "evicts": info.get("maxmemory_policy", "noeviction") != "noeviction",
            "persists": bool(int(info.get("aof_enabled", 0))),
            "used_bytes": int(info["used_memory"]),
        }


def measure_clock_skew(settings: ServerSettings) -> float:
    """Seconds by which the server's clock is ahead of this machine's, below 0: behind it."""
    with translate_errors(settings), connect(settings) as client:
        client.ping()  # the way to the server is open; only the question is timed
        before = time.time()
        seconds, micros = cast("tuple[int, int]", client.time())
        return seconds + micros / 1e6 - (before + time.time()) / 2
