"""Search indices on a test's Elasticsearch, each under a prefix of its own.

Making four indices takes seconds on a busy machine, so those that a test leaves behind are emptied
and serve the next one; what a test makes with settings of its own is deleted after it.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.server_settings import ServerSettings
from search.elastic import merging
from search.elastic.connection import ElasticsearchConnection
from search.elastic.index import ElasticsearchIndex


class ElasticIndices:
    """Opens indices by folder, as the embedded ones are."""

    def __init__(self, url: str, password_file: Path | None) -> None:
        self._values: dict[str, Any] = {
            "broker": "redis://unused:1/0",
            "elasticsearch": url,
            "elasticsearch_password_file": password_file,
            "neo4j": "bolt://unused:1",
        }
        self._numbers = itertools.count()
        self._idle: dict[tuple[str, int], list[str]] = defaultdict(list)
        self._used: dict[Path, tuple[str, int, str]] = {}
        self._shared: dict[str, str] = {}
        self._own: set[str] = set()

    def settings(self, **changed: object) -> ServerSettings:
        """Settings with a prefix that nothing else has."""
        prefix = self._prefix()
        self._own.add(prefix)
        return self._with_prefix(prefix, **changed)

    def shared_settings(self, name: str) -> ServerSettings:
        """Settings of one prefix for tests of this name, each of which removes what it wrote."""
        return self._with_prefix(self._shared.setdefault(name, self._prefix()))

    def _with_prefix(self, prefix: str, **changed: object) -> ServerSettings:
        return ServerSettings(**(self._values | {"elasticsearch_prefix": prefix} | changed))

    def _prefix(self) -> str:
        return f"test{os.getpid()}_{next(self._numbers)}"

    def open(
        self, folder: Path, model: str, dimension: int, *, writable: bool = True
    ) -> ElasticsearchIndex:
        """The index of a folder; one that another test has left empty, if there is one."""
        if folder not in self._used:
            idle = self._idle[model, dimension]
            self._used[folder] = (model, dimension, idle.pop() if idle else self._prefix())
        return self._open(*self._used[folder], writable)

    def _open(self, model: str, dimension: int, prefix: str, writable: bool) -> ElasticsearchIndex:
        index = ElasticsearchIndex(self._with_prefix(prefix), model, dimension, writable=writable)
        index.ensure()
        return index

    def empty(self) -> None:
        """After a test: empty what the next may use, delete the rest."""
        for model, dimension, prefix in self._used.values():
            index = self._open(model, dimension, prefix, True)
            index.delete(index.list_keys())
            index.close()
            self._idle[model, dimension].append(prefix)
        self._used.clear()
        self._delete(self._own)
        self._own.clear()

    def close(self) -> None:
        """Delete everything."""
        idle = {prefix for some in self._idle.values() for prefix in some}
        self._delete(idle.union(self._shared.values()))

    def _delete(self, prefixes: set[str]) -> None:
        connection = ElasticsearchConnection(ServerSettings(**self._values))
        try:
            with connection.translate_errors() as client:
                made = client.indices.get_alias(index=[f"{one}-*" for one in prefixes])
                if prefixes and made:
                    client.indices.delete(index=",".join(made))
        finally:
            connection.close()


@pytest.fixture(scope="session")
def elastic_indices(
    elasticsearch_url: str, elasticsearch_password_file: Path | None
) -> Iterator[ElasticIndices]:
    indices = ElasticIndices(elasticsearch_url, elasticsearch_password_file)
    yield indices
    indices.close()


@pytest.fixture
def elastic(elastic_indices: ElasticIndices) -> Iterator[ElasticIndices]:
    yield elastic_indices
    elastic_indices.empty()


@pytest.fixture
def no_wait_for_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge at once, which leaves deleted documents in the files for up to a minute.

    Answers are the same. Tests of the purge wait until no file has them.
    """
    monkeypatch.setattr(merging, "_LEASE_SECONDS", 0.0)
