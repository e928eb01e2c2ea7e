"""Replacing the live index set by one of another model or schema."""

from __future__ import annotations

from config.errors import UsageError
from config.settings import ServerSettings
from search.elastic.connection import ElasticsearchConnection
from search.elastic.index import ElasticsearchIndex
from search.elastic.index_sets import SCHEMA, STORAGE_VERSION, IndexIdentity, IndexSet, IndexSets


class ElasticsearchReplacement:
    """The live set as `source`, the one that the settings now name as `target`.

    The source stays complete and readable throughout, and after the switch until it is dropped.
    Raises UsageError when there is nothing to replace, or the source cannot be read any more.
    """

    def __init__(self, servers: ServerSettings, model: str, dimension: int) -> None:
        self._connection = ElasticsearchConnection(servers)
        self._sets = IndexSets(self._connection, servers)
        wanted = IndexIdentity(SCHEMA, model, dimension)
        live = self._sets.get_live()
        if live is None:
            raise UsageError(
                f"{self._connection.address} holds no search index with prefix "
                f"{servers.elasticsearch_prefix!r} yet: nothing to reindex"
            )
        if live.identity == wanted:
            raise UsageError(f"the search index {live.name} is of {wanted} already")
        if live.identity.schema.partition(".")[0] != str(STORAGE_VERSION):
            raise UsageError(
                f"this version cannot read the search index {live.name} ({live.identity}); sync "
                "the sources again under another servers.elasticsearch_prefix"
            )
        self._old = live
        self._new = self._sets.create(wanted)
        # It may be one that was replaced before.
        self._sets.block_writes(self._new, False)
        self.source = _opened(servers, live, writable=False)
        self.target = _opened(servers, self._new, writable=True)
        self.same_model = (live.identity.model, live.identity.dimension) == (model, dimension)

    @property
    def names(self) -> tuple[str, str]:
        """The sets' names: old, new."""
        return self._old.name, self._new.name

    def block_writes(self) -> None:
        """Have the source refuse writes, when those under way have ended."""
        self._sets.block_writes(self._old, True)

    def allow_writes(self) -> None:
        """Have the source take writes again."""
        self._sets.block_writes(self._old, False)

    def switch(self) -> None:
        """Make the target the live set, in one step."""
        self._sets.activate(self._new)

    def close(self) -> None:
        """Close the connections."""
        self.source.close()
        self.target.close()
        self._connection.close()


def delete_superseded(servers: ServerSettings) -> list[str]:
    """Delete every set under the prefix that is not live; returns their names."""
    connection = ElasticsearchConnection(servers)
    try:
        sets = IndexSets(connection, servers)
        if sets.get_live() is None:
            return []
        old = sets.superseded()
        for one in old:
            sets.delete(one)
        return [one.name for one in old]
    finally:
        connection.close()


def _opened(servers: ServerSettings, one: IndexSet, *, writable: bool) -> ElasticsearchIndex:
    return ElasticsearchIndex(
        servers,
        one.identity.model,
        one.identity.dimension,
        writable=writable,
        index_set=one,
        caching=False,
    )
