"""Addresses of brokers that cannot be used are refused at the start."""

from __future__ import annotations

import pytest

from config.errors import UsageError
from config.server_settings import ServerSettings
from config.settings import Settings
from tasks.broker.broker_config import server_broker_config
from workers.queue.broker import get_submission_broker


@pytest.mark.parametrize(
    "address",
    [
        "redis://127.0.0.1:port/0",
        "amqp://user@127.0.0.1:65536/vhost",
        "redis://127.0.0.1:0/0",
        "redis://[::1/0",
        "http://127.0.0.1:6379",
        "127.0.0.1:6379",
    ],
)
def test_an_address_of_no_broker_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"^submissions\.broker is not the address of a broker"):
        get_submission_broker(Settings(submissions={"broker": address}))
    servers = ServerSettings(
        broker=address,
        redis="redis://127.0.0.1:1",
        elasticsearch="http://127.0.0.1:1",
        neo4j="bolt://127.0.0.1:1",
    )
    with pytest.raises(UsageError, match=r"^servers\.broker is not the address of a broker"):
        server_broker_config(servers)
