"""Celery's tasks: errors of a process that is being ended, and of a result backend that is away."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import celery._state
import pytest
from billiard import common
from kombu.utils import functional

from config.errors import TransientError
from config.server_settings import ServerSettings
from tasks.broker.broker_config import memory_broker_config, server_broker_config
from tasks.celery_app import create_app
from tasks.policies import INGEST, QUERY
from tasks.send import send_task
from tasks.services import Services


def interrupted() -> Services:
    """Stands for the services of a process that is ended while they are opened."""
    try:
        raise SystemExit
    finally:
        raise KeyError("a connection that was being replaced")


@pytest.fixture
def task() -> Any:
    app = create_app(interrupted, [INGEST.queue], memory_broker_config())
    return app.tasks[INGEST.name]


def test_an_error_in_place_of_system_exit_ends_the_process(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_should_have_exited", [True])
    with pytest.raises(SystemExit):
        task(["crafts:bread"])


def test_other_errors_are_the_tasks_own(task: Any) -> None:
    with pytest.raises(KeyError):
        task(["crafts:bread"])


@pytest.mark.parametrize(
    ("address", "checked"),
    [
        ("redis://host", None),
        ("rediss://host", {"ssl_cert_reqs": "required"}),
        ("rediss://host?ssl_ca_certs=/ca", {"ssl_cert_reqs": "required", "ssl_ca_certs": "/ca"}),
        ("rediss://host?ssl_cert_reqs=none", {"ssl_cert_reqs": "none"}),
    ],
)
def test_redis_with_tls_needs_a_certificate(address: str, checked: dict[str, str] | None) -> None:
    servers = ServerSettings(broker=address, elasticsearch="http://host", neo4j="bolt://host")
    app = create_app(interrupted, [QUERY.queue], server_broker_config(servers))
    assert app.conf.broker_use_ssl == app.conf.redis_backend_use_ssl == checked
    assert bool(app.connection_for_write().ssl) == bool(checked)
    assert ("ssl_cert_reqs" in app.backend.connparams) == bool(checked)


def test_a_query_fails_for_now_while_the_result_backend_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As in a gateway: a worker in this process, of another test, would leave the subscription out.
    monkeypatch.setattr(celery._state, "_task_join_will_block", False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    config = replace(
        memory_broker_config(),
        result_backend=f"redis://127.0.0.1:{port}",
        options={"socket_timeout": 3.0},
    )
    app = create_app(interrupted, [QUERY.queue], config)
    pauses: list[float] = []
    monkeypatch.setattr(functional, "sleep", pauses.append)
    monkeypatch.setattr(functional, "time", lambda: sum(pauses))
    with pytest.raises(TransientError):
        send_task(app, QUERY.name, ["q-1"], keep_result=True)
    assert sum(pauses) < 10
