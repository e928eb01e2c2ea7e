"""What servers refuse until it is repaired: work waits, and no skill is lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from search.elastic.connection import ElasticsearchConnection
from search.elastic.index_sets import SCHEMA, IndexIdentity, IndexSets
from tests.support.program.program import ForkServer, wait_for
from tests.support.program.secrecy import made_up
from tests.support.samples.catalog import run_cypher
from tests.support.servers.distributed import Deployments, deployments
from tests.support.servers.faults import LIMIT, PATIENT, Arena, change_of

__all__ = ["deployments"]

OTHER = "refused"
"""How the names of an index of another model begin."""


@pytest.fixture(scope="module")
def arena(
    deployments: Deployments, fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Arena:
    short = {"SKILLBUS_WORKERS__KEEP_SECONDS": "0", "SKILLBUS_WORKERS__SWEEP_SECONDS": "0.5"}
    folder = tmp_path_factory.mktemp("refused")
    arena = Arena(deployments(**short), fork_server, folder, random.randrange(1 << 30), size=6)
    arena.use(PATIENT)
    arena.wait_working()
    return arena


@contextmanager
def wrong_password(arena: Arena, folder: Path) -> Iterator[dict[str, str]]:
    """A password that Neo4j does not know."""
    del arena
    file = folder / "password"
    file.write_text(made_up("and-wrong") + "\n")
    yield {"SKILLBUS_SERVERS__NEO4J_PASSWORD_FILE": str(file)}


@contextmanager
def other_model(arena: Arena, folder: Path) -> Iterator[dict[str, str]]:
    """An index that another model has made."""
    del folder
    own = {"elasticsearch_prefix": OTHER}
    servers = arena.distributed.settings.servers.model_copy(update=own)
    connection = ElasticsearchConnection(servers)
    try:
        IndexSets(connection, servers).ensure(IndexIdentity(SCHEMA, "another-model", 4))
        yield {"SKILLBUS_SERVERS__ELASTICSEARCH_PREFIX": OTHER}
        with connection.translate_errors() as client:
            made = client.indices.get_alias(index=f"{OTHER}-*")
            client.indices.delete(index=",".join(made))
    finally:
        connection.close()


@contextmanager
def closed_index(arena: Arena, folder: Path) -> Iterator[dict[str, str]]:
    """Indices that are closed, as while a snapshot is restored into them."""
    del folder
    servers = arena.distributed.settings.servers
    connection = ElasticsearchConnection(servers)
    try:
        with connection.translate_errors() as client:
            names = list(client.indices.get_alias(index=f"{servers.elasticsearch_prefix}-*"))
            client.indices.close(index=names)
            try:
                yield {}
            finally:
                client.indices.open(index=names)
    finally:
        connection.close()


@contextmanager
def newer_schema(arena: Arena, folder: Path) -> Iterator[dict[str, str]]:
    """A catalog that a newer skillbus has laid out."""
    del folder
    servers = arena.distributed.settings.servers
    where = "MATCH (m:Meta {key: 'schema'})"
    [[known]] = run_cypher(servers, f"{where} RETURN m.value")
    run_cypher(servers, f"{where} SET m.value = 99")
    try:
        yield {}
    finally:
        run_cypher(servers, f"{where} SET m.value = {known}")


REFUSALS = [
    (wrong_password, "refuses the login"),
    (newer_schema, "upgrade skillbus"),
    (closed_index, "is closed: open it"),
    (other_model, "was made with model 'another-model'"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("spoilt", "said"), REFUSALS, ids=lambda one: getattr(one, "__name__", ""))
def test_work_waits_until_it_is_put_right(
    arena: Arena,
    tmp_path: Path,
    spoilt: Callable[[Arena, Path], AbstractContextManager[dict[str, str]]],
    said: str,
) -> None:
    distributed = arena.distributed
    with distributed.backend() as backend:
        before = backend.graph.get_counts()
        distributed.stop("ingest")
        with spoilt(arena, tmp_path) as arena.own:
            arena.launch("ingest")
            distributed.wait_ready("ingest")
            arena.folder.change(3)
            event_id = backend.submit(change_of(arena.folder.root), "tests")
            log = distributed.workers["ingest"].process
            wait_for(lambda: said in log.text("err"), LIMIT)
            assert backend.journal.get_job(event_id).state != "failed"
            distributed.stop("ingest")
        arena.own = {}
        assert "sesame-73" not in log.text("err")
        after = backend.graph.get_counts()
        assert after["published"] == before["published"], "no skill may suffer"
        assert backend.journal.count_dead_letters() == 0
        arena.use(PATIENT)
        arena.check([event_id])
