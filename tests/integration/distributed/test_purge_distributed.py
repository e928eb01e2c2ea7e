"""History, pins and `skillbus skills purge` on real servers: no client finds a purged text."""

from __future__ import annotations

import contextlib
import shutil
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from search.elastic.connection import ElasticsearchConnection
from tasks.broker.redis_connection import connect
from tests.support.program.program import wait_for
from tests.support.program.traces import expand, find_traces
from tests.support.samples.catalog import run_cypher
from tests.support.samples.library import TOPICS, write_skill, write_topics
from tests.support.servers.distributed import Deployments, Distributed, deployments
from tests.support.servers.servers import RunServers, external

__all__ = ["deployments"]

SECRET = "crafts:secret-glaze"
WORDS = ("quixzotter", "vlumbering", "zaffrepond")
TASK = "mix the secret glaze and stir it twice"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_topics(tmp_path_factory.mktemp("purge") / "crafts")


@pytest.fixture(scope="module")
def library(deployments: Deployments, root: Path) -> Distributed:
    made = deployments(SKILLBUS_SERVERS__NEO4J_PASSAGES="true")
    made.start()
    for word in WORDS[:2]:
        write_skill(
            root, "secret-glaze", f"Mix a zaffrepond glaze {word}", f"# A\n\nStir {word}.\n"
        )
        made.skillbus("sync", str(root))
    return made


def find_words(made: Distributed) -> set[str]:
    """Which of the words a client of Elasticsearch, Neo4j or Redis can find."""
    texts = [text.lower() for value in _read_all(made) for text in expand(value)]
    return {word for word in WORDS if any(word.encode() in text for text in texts)}


def _read_all(made: Distributed) -> Iterator[bytes]:
    servers = made.settings.servers
    connection = ElasticsearchConnection(servers)
    try:
        with connection.translate_errors() as client:
            found = client.search(index=f"{servers.elasticsearch_prefix}-*", size=5_000)
            for hit in found["hits"]["hits"]:
                yield from _read_values(hit.get("_source", {}))
            for name in client.indices.get_alias(index=f"{servers.elasticsearch_prefix}-*"):
                for word in WORDS:
                    counted = client.count(index=name, q=word)["count"]
                    yield word.encode() if counted else b""
    finally:
        connection.close()
    rows = run_cypher(
        servers,
        "MATCH (n) RETURN properties(n) AS values "
        "UNION ALL MATCH ()-[r]->() RETURN properties(r) AS values",
    )
    for (values,) in rows:
        yield repr(values).encode()
    redis: Any = connect(servers, binary=True)
    try:
        for key in redis.scan_iter():
            yield from _read_key(redis, key)
    finally:
        redis.close()


def _read_key(redis: Any, key: bytes) -> Iterator[bytes]:
    kind = redis.type(key)
    if kind == b"string":
        yield redis.get(key)
    elif kind == b"hash":
        yield from redis.hgetall(key).values()
    elif kind == b"set":
        yield from redis.smembers(key)


def _read_values(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _read_values(one)
    elif isinstance(value, list):
        for one in value:
            yield from _read_values(one)
    elif isinstance(value, str):
        yield value.encode()
        with contextlib.suppress(Base64Error, ValueError):
            yield b64decode(value, validate=True)


def test_a_pinned_skill_is_held_back(library: Distributed, root: Path) -> None:
    skillbus, pinned = library.skillbus, "crafts:bee-keeping"

    def states() -> list[str]:
        return [row["state"] for row in skillbus("skills", "history", pinned, "--json").data]

    skillbus("pins", "add", pinned, "--reason", "not reviewed")
    write_skill(root, "bee-keeping", body="# Bees\n\nLeave them alone.\n")
    skillbus("sync", str(root))
    assert states() == ["held", "published"]
    [row] = skillbus("pins", "drift", "--json").data
    assert "+Leave them alone." in row["change"]["diff"]
    skillbus("pins", "remove", pinned)
    wait_for(lambda: states()[0] == "published")


def find_in_files(run_servers: RunServers, *names: str) -> set[str]:
    """Which of the words are in files of servers that this run started."""
    own = [run_servers.own(name).place.data for name in names if external(name) is None]
    return {one.rpartition(": ")[2] for data in own for one in find_traces(data, WORDS)}


def test_history_and_purge(
    library: Distributed, root: Path, run_servers: RunServers, tmp_path: Path
) -> None:
    skillbus = library.skillbus
    rows = skillbus("skills", "history", SECRET, "--json").data
    assert [row["state"] for row in rows] == ["published", "superseded"]
    diff = skillbus("skills", "diff", SECRET, "--json").data["diff"]
    assert "-Stir quixzotter." in diff
    assert SECRET in skillbus.chosen(TASK)
    wait_for(lambda: find_words(library) == set(WORDS))
    other = skillbus("query", TOPICS["bee-keeping"], "--format", "json").data["query_id"]
    if all(external(name) is None for name in ("elasticsearch", "redis")):
        assert find_in_files(run_servers, "elasticsearch", "redis")  # it finds what is there
    shutil.rmtree(root / "secret-glaze")
    purged = skillbus("skills", "purge", SECRET, "--yes", "--json")
    assert "Neo4j may still hold" in purged.err
    report = purged.data
    assert report["revisions"] >= 1
    assert report["kept_revisions"] == 1
    assert report["jobs"] >= 1
    assert report["comes_back"] == ""
    assert report["model_answers"] == 0
    # What is known of other answers is kept.
    skillbus("outcome", other, "crafts:bee-keeping", "helped")
    assert skillbus("outcomes", "export").out.count(other) >= 1
    assert find_words(library) == set()
    assert find_in_files(run_servers, "elasticsearch", "redis") == set()
    # Files of Neo4j keep deleted values; a database that is made anew from a backup has none.
    skillbus("backup", str(tmp_path / "backup"))
    assert find_traces(tmp_path / "backup", WORDS) == []
    skillbus("sync", str(root))
    assert find_words(library) == set()
    assert SECRET not in skillbus.skills()
