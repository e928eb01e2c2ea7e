"""An upgrade from the version of the data before: queries are answered at every moment of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from config.errors import SkillbusError
from graph.neo4j.migrations import migrations
from search.elastic.connection import ElasticsearchConnection
from search.elastic.index_sets import SCHEMA, IndexSets
from skills.events import QueryAsked
from tests.support.program import former_version
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.program.snapshot import NOTHING_LEFT, differences, leftovers
from tests.support.samples.catalog import run_cypher
from tests.support.samples.library import TOPICS, write_skill, write_topics
from tests.support.servers.distributed import REST, Deployments, Distributed, deployments
from tests.support.servers.faults import lacks
from tests.support.servers.stored import make_new

__all__ = ["deployments"]

FORMER = {"FORMER_VERSION": "1"}
TASK = TOPICS["bicycle-repair"]
BEST = "crafts:bicycle-repair"


def versions(deployment: Distributed) -> tuple[Any, str]:
    """The schema of the catalog, and that of the live index."""
    servers = deployment.settings.servers
    [[catalog]] = run_cypher(servers, "MATCH (m:Meta {key: 'schema'}) RETURN m.value")
    connection = ElasticsearchConnection(servers)
    try:
        live = IndexSets(connection, servers).get_live()
    finally:
        connection.close()
    assert live is not None
    return catalog, live.identity.schema


@contextmanager
def asking(deployment: Distributed) -> Iterator[list[str]]:
    """Queries one after another, each answered with the right skill; yields the best of each."""
    answers: list[str] = []
    problems: list[str] = []
    stopping = threading.Event()

    def ask() -> None:
        with deployment.backend() as backend:
            while not stopping.wait(0.05):
                try:
                    bundle = backend.answer_query(QueryAsked(task=TASK), "tests")
                except SkillbusError as error:
                    problems.append(str(error))
                else:
                    answers.append(bundle["skills"][0]["skill_id"] if bundle["skills"] else "none")
                    problems.extend(lacks(bundle))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        stopping.set()
        thread.join()
    assert not problems
    assert set(answers) == {BEST}


@pytest.mark.timeout(600)
def test_queries_are_answered_at_every_moment_of_an_upgrade(
    deployments: Deployments, fork_server: ForkServer, tmp_path: Path
) -> None:
    deployment = deployments()
    make_new(deployment)
    deployment.start(**FORMER)
    root = write_topics(tmp_path / "crafts")
    example = 'Use when the user says "fire my pots". Not for glass; use anneal instead.'
    write_skill(root, "kiln-firing", example)
    deployment.skillbus.with_environment(**FORMER)("sync", str(root))
    with former_version.acting_former():
        deployment.wait_done()
    newest = max(migrations())
    assert versions(deployment) == (newest - 1, former_version.SCHEMA)
    assert "skillbus reindex" in deployment.skillbus("doctor", code=1).out

    old = dict(deployment.workers)
    # The watcher may be of the new version at once; it reads no index.
    with asking(deployment) as answers, deployment.skillbus.serving():
        # A worker of the new version takes no query before the index is moved.
        early = deployment.launch("query")
        wait_for(lambda: "queries are not accepted yet" in early.process.text("err"))
        assert not early.ready
        deployment.skillbus("reindex")
        assert versions(deployment) == (newest, SCHEMA)
        deployment.wait_ready("query")
        deployment.start("ingest")
        for worker in old.values():
            worker.send(signal.SIGTERM)
        for worker in old.values():
            assert worker.process.wait().code == 0
        deployment.start(REST)  # links have one writer at a time
        write_skill(root, "tide-tables", "Read the moon instead")
        deployment.skillbus("sync", str(root))
        deployment.wait_done()
        seen = len(answers)
        wait_for(lambda: len(answers) > seen)
    embedded = Skillbus(fork_server, tmp_path / "embedded")
    embedded("sync", str(root))
    assert not differences(deployment.settings, embedded.home)
    assert leftovers(deployment.settings) | {"orphans": []} == NOTHING_LEFT
    assert deployment.skillbus("query", "fire my pots", "--format", "json").data["skills"]
