"""Elasticsearch that is busy, cut off or read-only while work runs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from search.elastic.connection import ElasticsearchConnection
from tests.support.program.program import ForkServer, wait_for
from tests.support.servers.distributed import Deployments, deployments
from tests.support.servers.faults import HASTY, LIMIT, Arena
from tests.support.servers.proxy import Fault, Proxy, proxying

__all__ = ["deployments"]

SHORT = {"SKILLBUS_WORKERS__KEEP_SECONDS": "0", "SKILLBUS_WORKERS__SWEEP_SECONDS": "0.5"}


@pytest.fixture(scope="module")
def proxy(elasticsearch_url: str) -> Iterator[Proxy]:
    with proxying(elasticsearch_url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def arena(
    proxy: Proxy,
    deployments: Deployments,
    fork_server: ForkServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Arena:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    folder = tmp_path_factory.mktemp("elastic")
    arena = Arena(deployments(**SHORT), fork_server, folder, seed, size=12)
    arena.own = {"SKILLBUS_SERVERS__ELASTICSEARCH": proxy.url}
    arena.use(HASTY)
    arena.wait_working()
    return arena


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["busy", "cut"])
def test_trouble_on_the_way(arena: Arena, proxy: Proxy, fault: Fault) -> None:
    with arena.traffic() as traffic:
        proxy.fault = fault
        wait_for(lambda: proxy.met[fault] > 1 and traffic.seen.degraded, LIMIT)
        proxy.fault = None
        seconds = arena.wait_working()
    print(f"Elasticsearch {fault}: works after {seconds:.1f} s; {traffic.seen}")
    assert not traffic.seen.errors
    assert not traffic.refused


@pytest.mark.timeout(600)
def test_read_only_for_a_while(arena: Arena) -> None:
    with arena.traffic() as traffic:
        set_block(arena, True)
        wait_for(lambda: "takes no writes" in trouble_of(arena), LIMIT)
        whole = traffic.seen.whole
        wait_for(lambda: traffic.seen.whole > whole + 1, LIMIT)  # queries need no writes
        set_block(arena, None)
        seconds = arena.wait_working()
    print(f"Elasticsearch read-only: works after {seconds:.1f} s; {traffic.seen}")
    assert not traffic.seen.errors


def set_block(arena: Arena, value: bool | None) -> None:
    """Set or lift the block that Elasticsearch itself sets when the disk is nearly full."""
    servers = arena.distributed.settings.servers
    connection = ElasticsearchConnection(servers)
    try:
        with connection.translate_errors() as client:
            client.indices.put_settings(
                index=f"{servers.elasticsearch_prefix}-*",
                settings={"index.blocks.read_only_allow_delete": value},
            )
    finally:
        connection.close()


def trouble_of(arena: Arena) -> str:
    """What the worker that ingests said last of what it waits for."""
    said = [line.get("reason", "") for line in arena.distributed.log("ingest")]
    return next((reason for reason in reversed(said) if reason), "")
