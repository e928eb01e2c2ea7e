"""`skillbus reindex`, on real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.server_settings import ServerSettings
from config.settings import EncoderSettings
from graph.neo4j.store import Neo4jSkillGraph
from graph.records import Publication
from search.elastic.index import ElasticsearchIndex
from search.models.load_models import encoder_identity
from skills.parsing.parse_skill import PARSER_VERSION
from skills.record import RevisionKey
from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.catalog import empty_catalog, open_catalog
from tests.support.samples.documents import tiny_document
from tests.support.samples.tiny import TinyEncoder
from tests.support.servers.elastic import ElasticIndices

NAMES = ("loom", "kiln")


@pytest.fixture
def settings(
    elastic: ElasticIndices, neo4j_url: str, neo4j_password_file: Path | None
) -> ServerSettings:
    return elastic.settings(neo4j=neo4j_url, neo4j_password_file=neo4j_password_file)


@pytest.fixture
def graph(settings: ServerSettings) -> Iterator[Neo4jSkillGraph]:
    opened = open_catalog(settings)
    empty_catalog(settings)
    yield opened
    opened.close()


@pytest.fixture
def distributed(fork_server: ForkServer, tmp_path: Path, settings: ServerSettings) -> Skillbus:
    """The command line with settings of a distributed deployment."""
    return Skillbus(
        fork_server,
        tmp_path / "home",
        **{
            f"SKILLBUS_SERVERS__{name.upper()}": str(value)
            for name, value in settings.model_dump().items()
            if value not in (None, "") and name != "redis_password_file"
        },
    )


def fill(index: ElasticsearchIndex, graph: Neo4jSkillGraph) -> set[RevisionKey]:
    """A published library of a few skills; returns its revisions."""
    documents = [tiny_document(name, seq=graph.allocate_sequence(1)[0]) for name in NAMES]
    index.add(documents)
    for one, name in zip(documents, NAMES, strict=True):
        graph.publish(
            [Publication(one.key, "home", name, name, name, name, parser_version=PARSER_VERSION)]
        )
    return {one.key for one in documents}


def test_a_library_moves_to_the_model_in_use(
    distributed: Skillbus, settings: ServerSettings, graph: Neo4jSkillGraph
) -> None:
    assert "nothing to reindex" in distributed("reindex", code=2).err
    old = ElasticsearchIndex(settings, TinyEncoder.model, TinyEncoder.dimension, writable=True)
    published = fill(old, graph)
    report = json.loads(distributed("reindex", "--json").out)
    assert report["copied"] == len(NAMES)
    assert report["old"] == old.ensure().name
    identity = encoder_identity(EncoderSettings())
    new = ElasticsearchIndex(settings, *identity, writable=False)
    assert set(new.list_keys()) == published
    assert new.ensure().name == report["new"]
    assert "already" in distributed("reindex", code=2).err
    dropped = json.loads(distributed("reindex", "--drop-old", "--json").out)
    assert dropped == {"dropped": [report["old"]]}
    assert "no old index to drop" in distributed("reindex", "--drop-old").out
    old.close()
    new.close()
