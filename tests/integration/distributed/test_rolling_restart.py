"""Every worker and the gateway replaced while work goes on: no query fails and nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.program.program import ForkServer, wait_for
from tests.support.servers.distributed import REST, Broker, Deployments, Distributed, deployments
from tests.support.servers.faults import PATIENT, Arena
from workers.processes.http_server import _SHUTDOWN_GRACE_SECONDS

__all__ = ["deployments"]

SEED = 23
SHORT = {"SKILLBUS_WORKERS__KEEP_SECONDS": "0", "SKILLBUS_WORKERS__SWEEP_SECONDS": "0.5"}
RECREATED = REST
"""The worker whose old process ends before the new one starts: links have one writer."""


def roll_out(distributed: Distributed) -> dict[str, float]:
    """Replace every worker as Kubernetes does: the new ones are ready before the old are stopped.

    Returns the seconds until the old ones ended, by workload.
    """
    old = dict(distributed.workers)
    surge = [name for name in old if name != RECREATED]
    for name in surge:
        distributed.launch(name)
    distributed.wait_ready(*surge)
    started = time.monotonic()
    for worker in old.values():
        worker.send(signal.SIGTERM)
    seconds = {}
    for name, worker in old.items():
        result = worker.process.wait()
        seconds[name] = time.monotonic() - started
        assert result.code == 0, result.err[-3000:]
    distributed.launch(RECREATED)
    distributed.wait_ready(RECREATED)
    return seconds


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_every_worker_is_replaced_under_load(
    deployments: Deployments,
    fork_server: ForkServer,
    tmp_path_factory: pytest.TempPathFactory,
    broker: Broker,
) -> None:
    deployment = deployments(broker, **SHORT)
    arena = Arena(deployment, fork_server, tmp_path_factory.mktemp(broker), SEED, size=15)
    arena.use(PATIENT)
    arena.wait_working()
    with arena.traffic() as traffic:
        seconds = roll_out(deployment)
        wait_for(lambda: traffic.seen.whole >= 5)
    print(f"seconds until they ended: {seconds}; {traffic.seen}; {len(traffic.accepted)} changes")
    assert not traffic.seen.errors
    assert not traffic.seen.degraded
    assert not traffic.refused
    assert traffic.accepted


def test_a_gateway_that_stops_gives_the_answers_that_clients_wait_for(
    deployments: Deployments,
) -> None:
    deployment = deployments()
    deployment.start("query")
    with (
        deployment.gateway(SKILLBUS_WORKERS__STOP_SECONDS="120") as (client, process),
        deployment.backend() as backend,
        ThreadPoolExecutor(1) as pool,
    ):
        frozen = deployment.workers["query"].kill_children(signal.SIGSTOP)
        body, waits = {"task": "true a bicycle wheel"}, {"Prefer": "wait=60"}
        asked = pool.submit(client.post, "/v1/queries", json=body, headers=waits, timeout=120)
        wait_for(lambda: backend.journal.count_open_jobs("query"))
        process.send(signal.SIGTERM)
        time.sleep(_SHUTDOWN_GRACE_SECONDS + 1)  # requests to `serve` would be cut by now
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        answer = asked.result()
    assert answer.status_code == 200
    assert answer.json()["bundle"]["reason"] == "the library holds no skill yet"
