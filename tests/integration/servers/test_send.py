"""Tasks that are sent while RabbitMQ does not answer, and after it was away."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from config.errors import TransientError
from config.server_settings import ServerSettings
from tasks.broker.broker_config import server_broker_config
from tasks.celery_app import create_app
from tasks.policies import PLAN, QUERY
from tasks.send import queue_depth, send_task, send_task_if_room
from tasks.services import Services
from tests.support.program.program import wait_for
from tests.support.servers.servers import ServerControls

TIMEOUT_SECONDS = 3


def no_services() -> Services:
    raise AssertionError("nothing runs here")


def make_app(broker: str, password_file: Path | None = None) -> Any:
    settings = ServerSettings(
        broker=broker,
        broker_password_file=password_file,
        redis="redis://127.0.0.1:1",
        elasticsearch="http://127.0.0.1:1",
        neo4j="bolt://127.0.0.1:1",
        timeout_seconds=TIMEOUT_SECONDS,
    )
    return create_app(no_services, (QUERY.queue, PLAN.queue), server_broker_config(settings))


@pytest.fixture
def app(rabbitmq_url: str, rabbitmq_password_file: Path | None) -> Iterator[Any]:
    made = make_app(rabbitmq_url, rabbitmq_password_file)
    yield made
    with made.connection_for_write() as connection:
        for queue in (QUERY.queue, PLAN.queue):
            with connection.channel() as channel:
                channel.queue_delete(queue)
    made.close()


@pytest.mark.parametrize("send", [send_task, send_task_if_room])
def test_a_caller_waits_for_a_silent_broker_once(send: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = make_app(f"amqp://127.0.0.1:{listener.getsockname()[1]}//")
        with pytest.raises(TransientError, match="the broker does not answer"):
            send(app, QUERY.name, ["q-1"])
        app.close()
        listener.setblocking(False)
        listener.accept()[0].close()
        with pytest.raises(BlockingIOError):  # there was no second connection
            listener.accept()


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_task_is_sent_once_a_frozen_broker_goes_on(
    app: Any, servers: ServerControls, is_connected: bool
) -> None:
    if is_connected:
        send_task(app, QUERY.name, ["q-1"])
    servers.rabbitmq.freeze()
    try:
        with pytest.raises(TransientError, match="the broker does not answer"):
            send_task(app, PLAN.name, ["q-2"])
    finally:
        servers.rabbitmq.thaw()
    send_task(app, PLAN.name, ["q-3"])


def sends(app: Any) -> bool:
    try:
        send_task(app, QUERY.name, ["q-3"])
    except TransientError:
        return False
    return True


def test_a_broker_that_was_away_gets_the_next_task(app: Any, servers: ServerControls) -> None:
    send_task(app, QUERY.name, ["q-1"])
    servers.rabbitmq.stop()
    with pytest.raises(TransientError):
        send_task(app, QUERY.name, ["q-2"])
    servers.rabbitmq.start_again()
    wait_for(partial(sends, app))  # a quorum queue needs a moment to choose its leader
    waiting = queue_depth(app, QUERY.queue)
    assert waiting >= 2
    servers.rabbitmq.stop()
    servers.rabbitmq.start_again()
    send_task(app, QUERY.name, ["q-5"])
    assert queue_depth(app, QUERY.queue) == waiting + 1
