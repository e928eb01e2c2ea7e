"""The names that a task and its queue had in version 0.1 are accepted still."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tasks.broker.broker_config import memory_broker_config
from tasks.celery_app import create_app
from tasks.policies import EMBED_SECTIONS, POLICIES, resolve_task_name
from tasks.send import send_task
from tasks.services import Services
from workers.processes.broker_consumer import _validate_headers
from workers.processes.workloads import add_former_queues, parse_workload, resolve_queue_name

FORMER = "skillbus.page"


def no_services() -> Services:
    raise AssertionError("nothing runs here")


def test_present_names_stay() -> None:
    assert [resolve_task_name(name) for name in POLICIES] == list(POLICIES)
    assert resolve_task_name("skillbus.unknown") == "skillbus.unknown"


def test_a_message_with_the_former_name_runs_the_task() -> None:
    headers = {"task": FORMER, "id": "1"}
    message = SimpleNamespace(body=b"[]", headers=headers)
    message.decode = lambda: [[["a"]], {}, {}]
    assert _validate_headers(message, 1_000)["task"] == EMBED_SECTIONS.name


def test_a_task_with_the_former_name_is_sent_under_the_present_one() -> None:
    app = create_app(no_services, (EMBED_SECTIONS.queue,), memory_broker_config())
    send_task(app, FORMER, ["a"])
    with app.connection_for_read() as connection:
        message = connection.SimpleQueue(EMBED_SECTIONS.queue).get(block=False)
        message.ack()
    assert message.headers["task"] == EMBED_SECTIONS.name


@pytest.mark.parametrize("name", ["page", "embed_sections"])
def test_a_worker_takes_the_queue_by_either_name(name: str) -> None:
    workload = parse_workload([name])
    assert workload.name == "embed_sections"
    assert workload.queues == (EMBED_SECTIONS.queue,)
    assert workload.bulk
    assert resolve_queue_name(name) == "embed_sections"
    assert add_former_queues(workload.queues) == (EMBED_SECTIONS.queue, FORMER)


def test_other_workers_take_no_former_queue() -> None:
    queues = parse_workload(["plan", "ingest"]).queues
    assert add_former_queues(queues) == queues
