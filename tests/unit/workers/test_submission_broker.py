"""Addresses of brokers that cannot be used are refused at the start."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from config.settings import Settings
from workers.queue.broker import get_submission_broker


def problem_of(**given: dict[str, str]) -> str:
    """Why these settings are refused."""
    with pytest.raises(ValidationError) as error:
        Settings.model_validate(given)
    return str(error.value).replace("\n  ", ": ")


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
    assert "servers.redis: " in problem_of(servers={"redis": address})
    for problem in (
        problem_of(submissions={"broker": address}),
        problem_of(servers={"broker": address}),
    ):
        assert "write redis://host:port/db or amqp://user@host:port/vhost" in problem


def test_results_are_stored_in_redis_only() -> None:
    assert "write redis://host:port/db" in problem_of(servers={"redis": "amqp://host//"})


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
    for given in ({"submissions": {"broker": address}}, {"servers": {"redis": address}}):
        if "redis" in address or "submissions" in given:
            assert re.search(r"the parameter \w+ is unknown or", problem_of(**given))


def test_parameters_of_tls_are_passed_on() -> None:
    address = "rediss://127.0.0.1:6380/2?ssl_cert_reqs=required&ssl_ca_certs=/etc/ca.pem"
    assert get_submission_broker(Settings(submissions={"broker": address})).url == address
