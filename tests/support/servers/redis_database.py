"""A Redis database of the tests' own, emptied before each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.server_settings import ServerSettings
from tasks.broker.redis_connection import connect

_DATABASE = 10


@pytest.fixture
def redis_settings(redis_url: str, redis_password_file: Path | None) -> Iterator[ServerSettings]:
    """Settings that name an empty database; the other addresses are of no server."""
    address = f"{redis_url.rpartition('/')[0]}/{_DATABASE}"
    settings = ServerSettings(
        broker=address,
        broker_password_file=redis_password_file,
        elasticsearch="http://127.0.0.1:1",
        neo4j="bolt://127.0.0.1:1",
    )
    with connect(settings) as client:
        client.flushdb()
        yield settings
        client.flushdb()
