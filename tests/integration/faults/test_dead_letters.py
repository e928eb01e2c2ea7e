"""What lies on the queues and is no task of ours becomes a dead letter; workers go on."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kombu.connection import Connection

from config.secrets import add_password, read_secret
from skills.events import SourceRemoved
from tests.support.program.program import wait_for
from tests.support.servers.distributed import Broker, Deployments, Distributed, deployments

__all__ = ["deployments"]

PLAN = "skillbus.plan"
DEEP = 20_000


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def ingesting(request: pytest.FixtureRequest, deployments: Deployments) -> Iterator[Distributed]:
    """A deployment whose only worker plans and ingests."""
    broker: Broker = request.param
    made = deployments(broker)
    made.start("ingest")
    yield made
    made.stop()


def task(ids: Any, **headers: Any) -> dict[str, Any]:
    """The message of a task as Celery writes it, headers changed; one that is ... is left out."""
    given = {"task": PLAN, "id": str(uuid.uuid4()), "lang": "py"} | headers
    return {
        "body": json.dumps([[ids], {}, {"callbacks": None, "errbacks": None}]),
        "headers": {name: value for name, value in given.items() if value is not ...},
    }


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no JSON": (task([]) | {"body": "{broken"}, "invalid application/json"),
    "no headers": ({"body": '{"hello": 1}', "headers": {}}, "no task"),
    "an older protocol": (
        {"body": json.dumps({"task": PLAN, "id": "1", "args": [["x"]]}), "headers": {}},
        "no task",
    ),
    "an unknown task": (task([], task="skillbus.format_disk"), "unknown task 'skillbus.format"),
    "a task that is no text": (
        task([], task=["skillbus.plan"]),
        "header 'task' is not a short text",
    ),
    "no id": (task([], id=...), "header 'id' is not a short text"),
    "too large": (task(["x" * 1_100_000]), "bytes, more than workers.message_bytes allows"),
    "ids that are no list": (task("all"), "one list of ids, not"),
    "ids that are no texts": (task([1, {"a": 2}]), "one list of ids, not"),
    "arguments by name": (
        task([]) | {"body": json.dumps([[], {"ids": ["x"]}, {}])},
        "one list of ids, not",
    ),
    "no arguments": (task([]) | {"body": json.dumps([[], {}, {}])}, "one list of ids, not"),
    "another task to follow": (
        task([]) | {"body": json.dumps([[["x"]], {}, {"callbacks": [{"task": "skillbus.link"}]}])},
        "one list of ids, not",
    ),
    "nested too deeply": (task([]) | {"body": nested(DEEP)}, "invalid application/json"),
    "pickled": (task([]) | {"content_type": "application/x-python-serialize"}, "pickle"),
}


def publish(deployment: Distributed, messages: list[dict[str, Any]]) -> None:
    """Put messages on the queue as another program would."""
    servers = deployment.settings.servers
    secret = read_secret(servers.broker_password_file, "servers.broker_password_file")
    # Without confirmations, RabbitMQ may drop messages of a connection that is closed at once.
    options = {"confirm_publish": True}
    with Connection(add_password(servers.broker, secret), transport_options=options) as connection:
        producer = connection.Producer(auto_declare=False)
        for message in messages:
            producer.publish(
                message["body"],
                exchange="",
                routing_key=PLAN,
                content_type=message.get("content_type", "application/json"),
                content_encoding="utf-8",
                headers=message["headers"],
                **message.get("properties", {}),
            )


def letters(deployment: Distributed) -> list[tuple[str, str]]:
    """Reason and body of the dead letters."""
    with deployment.backend() as backend:
        return [(letter.reason, letter.body) for letter in backend.journal.list_dead_letters(1000)]


def still_works(deployment: Distributed, worker_pid: int) -> None:
    """The same worker carries out an order."""
    assert deployment.workers["ingest"].pid == worker_pid
    assert deployment.workers["ingest"].running
    with deployment.backend() as backend:
        event = backend.submit(SourceRemoved(source_id="nothing"), "skillbus/test")
        wait_for(lambda: backend.journal.get_job(event).state == "failed")


def test_unreadable_messages_become_dead_letters(ingesting: Distributed) -> None:
    pid = ingesting.workers["ingest"].pid
    before = len(letters(ingesting))
    publish(ingesting, [message for message, _ in UNREADABLE.values()])
    found = wait_for(lambda: _at_least(ingesting, before + len(UNREADABLE)))
    for kind, (message, reason) in UNREADABLE.items():
        bodies = [body for why, body in found if reason in why]
        assert message["body"][:16_384] in bodies, f"{kind}: {found}"
    still_works(ingesting, pid)
    log = ingesting.log("ingest")
    assert sum(line["event"] == "message dead-lettered" for line in log) >= len(UNREADABLE)


def _at_least(deployment: Distributed, count: int) -> list[tuple[str, str]]:
    found = letters(deployment)
    return found if len(found) >= count else []


def envelope(**changed: Any) -> bytes:
    """A message as it lies in Redis."""
    whole = {
        "body": base64.b64encode(b"[[[]], {}, {}]").decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": PLAN, "id": "1"},
        "properties": {
            "body_encoding": "base64",
            "delivery_tag": "1",
            "delivery_info": {"exchange": "", "routing_key": PLAN},
        },
    }
    return json.dumps({**whole, **changed}).encode()


NO_MESSAGES = {
    "no JSON": b"{broken",
    "no text": b"\xff\xfe\x00",
    "nothing": b" ",
    "a number": b"17",
    "a list": b'["task"]',
    "nested too deeply": nested(DEEP).encode(),
    "a typed value that is none": b'{"__type__": "uuid", "__value__": "x"}',
    "no body": envelope(body=None),
    "headers that are a text": envelope(headers="task"),
    "no properties": envelope(properties={}),
    "no place": envelope(properties={"delivery_tag": "1"}),
    "a content type that is none": envelope(**{"content-type": 5}),
    "a body that is not in base64": envelope(body="abc"),
    "compressed": envelope(headers={"task": PLAN, "id": "1", "compression": "application/x-gzip"}),
}


@pytest.mark.parametrize("ingesting", ["redis"], indirect=True)
def test_garbage_in_the_lists_of_redis_becomes_dead_letters(ingesting: Distributed) -> None:
    pid = ingesting.workers["ingest"].pid
    before = len(letters(ingesting))
    with ingesting.redis() as client:
        for item in NO_MESSAGES.values():
            client.lpush(PLAN, item)
    wait_for(lambda: _at_least(ingesting, before + len(NO_MESSAGES)))
    with ingesting.backend() as backend:
        bodies = {letter.body for letter in backend.journal.list_dead_letters(1000)}
    for kind, item in NO_MESSAGES.items():
        assert item.decode("utf-8", "replace")[:16_384] in bodies, kind
    still_works(ingesting, pid)


@pytest.mark.parametrize("ingesting", ["rabbitmq"], indirect=True)
def test_a_message_whose_properties_cannot_be_decoded_becomes_a_dead_letter(
    ingesting: Distributed,
) -> None:
    pid = ingesting.workers["ingest"].pid
    publish(ingesting, [task([]) | {"properties": {"correlation_id": b"\xff"}}])
    wait_for(lambda: any("cannot be decoded" in reason for reason, _ in letters(ingesting)))
    still_works(ingesting, pid)
