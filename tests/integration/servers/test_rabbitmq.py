"""Workers on RabbitMQ: quorum queues, confirms, and nothing lost when a worker is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from skills.events import QueryAsked, SourceChanged
from tasks.broker.rabbitmq_status import inspect_rabbitmq
from tasks.policies import PLAN
from tasks.send import queue_depth
from tests.support.program.program import wait_for
from tests.support.program.snapshot import snapshot
from tests.support.samples.library import write_topics
from tests.support.servers.distributed import Deployments, Distributed, deployments
from tests.support.servers.faults import HASTY
from tests.support.servers.servers import ServerControls
from workers.processes.workloads import ALL_QUEUES

__all__ = ["deployments"]

ORIGIN = "skillbus/test"


@pytest.fixture(scope="module")
def on_rabbitmq(deployments: Deployments) -> Iterator[Distributed]:
    """A deployment on RabbitMQ with all workers."""
    made = deployments("rabbitmq")
    made.start()
    yield made
    made.stop()


def test_a_library_is_synced_and_asked(on_rabbitmq: Distributed, tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    report = on_rabbitmq.skillbus("sync", str(root), "--json").data
    assert report["published"] == report["paged"] == 10
    on_rabbitmq.wait_done()
    assert len(snapshot(on_rabbitmq.settings)) == 10
    with on_rabbitmq.backend() as backend:
        bundle = backend.answer_query(QueryAsked(task="true a bicycle wheel"), ORIGIN)
    assert bundle["skills"][0]["skill_id"] == "crafts:bicycle-repair"


def test_a_gateway_accepts_while_rabbitmq_is_away(
    on_rabbitmq: Distributed, servers: ServerControls
) -> None:
    hurry = {"SKILLBUS_SERVERS__TIMEOUT_SECONDS": str(HASTY)}
    with on_rabbitmq.gateway(**hurry) as (client, _):

        def ask(seconds: int) -> httpx.Response:
            headers = {"Prefer": f"wait={seconds}"}
            return client.post("/v1/queries", json={"task": "bake bread"}, headers=headers)

        assert ask(60).json()["bundle"]["skills"][0]["skill_id"] == "crafts:bread-baking"
        servers.rabbitmq.freeze()
        try:
            kept = ask(0)
            assert kept.status_code == 202
            wait_for(lambda: client.get("/readyz").json()["reasons"] == ["broker does not answer"])
            assert client.get("/readyz").status_code == 503
        finally:
            servers.rabbitmq.thaw()
        with on_rabbitmq.backend() as backend:
            backend.send_maintenance()
        place = kept.headers["location"]
        wait_for(lambda: client.get(place).json()["state"] == "done", 60)


def test_queues_are_quorum_queues_and_what_is_sent_is_confirmed(on_rabbitmq: Distributed) -> None:
    with on_rabbitmq.backend() as backend:
        facts = inspect_rabbitmq(backend.app, ALL_QUEUES, {"x-queue-type": "quorum"})
        assert (facts.missing_queues, facts.mismatched_queues) == ((), ())
        with backend.app.connection_for_write() as connection:
            assert connection.connection.confirm_publish
            # none of the queues for messages with a time of their own
            with connection.channel() as channel, pytest.raises(connection.channel_errors):
                channel.queue_declare("celery_delayed_0", passive=True)


def test_what_a_killed_worker_held_is_delivered_again(
    on_rabbitmq: Distributed, tmp_path: Path
) -> None:
    root = write_topics(tmp_path / "more")
    on_rabbitmq.stop("ingest")
    with on_rabbitmq.backend() as backend:
        event = backend.submit(SourceChanged(source_id="more", root=str(root)), ORIGIN)
        assert wait_for(lambda: queue_depth(backend.app, PLAN.queue)) == 1
        on_rabbitmq.launch("ingest")
        wait_for(backend.coordinator.get_running_tasks, 60)
        on_rabbitmq.kill("ingest")
        on_rabbitmq.start("ingest")
        wait_for(lambda: backend.journal.get_job(event).state == "done", 60)
        on_rabbitmq.wait_done()
        assert len(backend.graph.get_entries_under("more", "")) == 10
