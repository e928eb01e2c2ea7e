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
        "redis://127.0.0.1:6379/events",
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


@pytest.mark.parametrize(
    "address",
    [
        "redis://127.0.0.1/0?socket_timeout=abc",
        "redis://127.0.0.1/0?unknown=1",
        "redis://127.0.0.1/0?ssl_cert_reqs=none",
        "rediss://127.0.0.1/0?ssl_cert_reqs=sometimes",
        "amqp://127.0.0.1//?heartbeat=abc",
        "amqps://127.0.0.1//?ssl_cert_reqs=none",
    ],
)
def test_parameters_that_a_client_library_refuses_are_refused_at_the_start(address: str) -> None:
    with pytest.raises(UsageError, match=r"^submissions\.broker: the parameter \w+ is unknown or"):
        get_submission_broker(Settings(submissions={"broker": address}))


def test_parameters_of_tls_are_passed_on() -> None:
    address = "rediss://127.0.0.1:6380/2?ssl_cert_reqs=required&ssl_ca_certs=/etc/ca.pem"
    assert get_submission_broker(Settings(submissions={"broker": address})).url == address
