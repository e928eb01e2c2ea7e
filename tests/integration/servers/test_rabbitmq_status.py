"""What RabbitMQ tells `doctor`: version, queues that are missing, queues of another kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.errors import MisconfiguredError, TransientError
from config.server_settings import ServerSettings
from deploy.stack.ports import free_port
from tasks.broker.broker_config import server_broker_config
from tasks.broker.rabbitmq_status import inspect_rabbitmq
from tasks.celery_app import create_app
from tasks.send import queue_depth
from tasks.services import Services
from tests.support.program.secrecy import made_up

QUEUES = ("test.facts.one", "test.facts.two")


def no_services() -> Services:
    raise AssertionError("nothing runs here")


def app_of(url: str, password_file: Path | None) -> tuple[Any, Any]:
    settings = ServerSettings(
        broker=url,
        broker_password_file=password_file,
        redis="redis://127.0.0.1:1",
        elasticsearch="http://127.0.0.1:1",
        neo4j="bolt://127.0.0.1:1",
        timeout_seconds=60,
    )
    transport = server_broker_config(settings)
    return create_app(no_services, QUEUES, transport), transport.queue_arguments


@pytest.fixture
def app(rabbitmq_url: str, rabbitmq_password_file: Path | None) -> Iterator[Any]:
    made, _ = app_of(rabbitmq_url, rabbitmq_password_file)
    yield made
    with made.connection_for_write() as connection:
        for queue in QUEUES:
            with connection.channel() as channel:
                channel.queue_delete(queue)
    made.close()


def declare(app: Any, queue: str, **arguments: object) -> None:
    with app.connection_for_write() as connection, connection.channel() as channel:
        channel.queue_declare(queue, durable=True, auto_delete=False, arguments=arguments)


def test_queues_are_missing_right_or_of_another_kind(app: Any) -> None:
    quorum = {"x-queue-type": "quorum"}
    facts = inspect_rabbitmq(app, QUEUES, quorum)
    assert (facts.missing_queues, facts.mismatched_queues) == (QUEUES, ())
    assert int(facts.version.partition(".")[0]) >= 3
    assert inspect_rabbitmq(app, QUEUES, quorum).missing_queues == QUEUES, "asking makes none"
    declare(app, QUEUES[0], **quorum)
    declare(app, QUEUES[1])
    facts = inspect_rabbitmq(app, QUEUES, quorum)
    assert (facts.missing_queues, facts.mismatched_queues) == ((), (QUEUES[1],))
    assert queue_depth(app, QUEUES[0]) == 0


def test_a_wrong_password_is_reported_and_not_shown(
    rabbitmq_url: str, rabbitmq_password_file: Path | None, tmp_path: Path
) -> None:
    del rabbitmq_password_file
    wrong = tmp_path / "wrong"
    wrong.write_text(made_up("and-wrong"), encoding="utf-8")
    app, arguments = app_of(rabbitmq_url, wrong)
    with pytest.raises(MisconfiguredError, match="refuses the login") as caught:
        inspect_rabbitmq(app, QUEUES, arguments)
    assert made_up("and-wrong") not in str(caught.value)
    with pytest.raises(MisconfiguredError, match="refuses the login"):
        queue_depth(app, QUEUES[0])
    app.close()


def test_one_that_is_away_is_transient(tmp_path: Path) -> None:
    app, arguments = app_of(f"amqp://guest@127.0.0.1:{free_port(set())}//", None)
    with pytest.raises(TransientError, match="does not answer"):
        inspect_rabbitmq(app, QUEUES, arguments)
    app.close()
