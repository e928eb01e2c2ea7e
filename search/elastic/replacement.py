"""Replacement of the live index set by one of another model or schema, for a reindex."""

from __future__ import annotations

from contextlib import closing

from config.errors import NothingToDoError, UsageError
from config.server_settings import ServerSettings
from search.elastic.connection import ElasticsearchConnection
from search.elastic.index import ElasticsearchIndex
from search.elastic.index_sets import SCHEMA, STORAGE_VERSION, IndexIdentity, IndexSet, IndexSets


class ElasticsearchReplacement:
    """The live index set as `source`, and the set of the current settings as `target`.

    The source stays complete and readable, also after the switch, until it is deleted. Raises
    NothingToDoError if the live set is that of the settings, UsageError if there is none or this
    version cannot read it.
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
            raise NothingToDoError(f"the search index {live.name} is of {wanted} already")
        if live.identity.schema.partition(".")[0] != str(STORAGE_VERSION):
            raise UsageError(
                f"this version cannot read the search index {live.name} ({live.identity}); sync "
                "the sources again under another servers.elasticsearch_prefix"
            )
        self._old = live
        self._new = self._sets.create(wanted)
        # A set that was replaced earlier still blocks writes.
        self._sets.block_writes(self._new, False)
        self.source = _open_index(servers, live, writable=False)
        self.target = _open_index(servers, self._new, writable=True)
        self.same_model = (live.identity.model, live.identity.dimension) == (model, dimension)

    @property
    def names(self) -> tuple[str, str]:
        """Names of the old and the new set."""
        return self._old.name, self._new.name

    def block_writes(self) -> None:
        """Block writes to the source, once those in progress have ended."""
        self._sets.block_writes(self._old, True)

    def allow_writes(self) -> None:
        """Allow writes to the source again."""
        self._sets.block_writes(self._old, False)

    def switch(self) -> None:
        """Make the target the live set, in one request."""
        self._sets.activate(self._new)

    def close(self) -> None:
        """Close the connections."""
        self.source.close()
        self.target.close()
        self._connection.close()


def delete_superseded(servers: ServerSettings) -> list[str]:
    """Delete every set under the prefix that is not live; returns their names."""
    with closing(ElasticsearchConnection(servers)) as connection:
        sets = IndexSets(connection, servers)
        if sets.get_live() is None:
            return []
        old = sets.superseded()
        for one in old:
            sets.delete(one)
        return [one.name for one in old]


def _open_index(servers: ServerSettings, one: IndexSet, *, writable: bool) -> ElasticsearchIndex:
    return ElasticsearchIndex(
        servers,
        one.identity.model,
        one.identity.dimension,
        writable=writable,
        index_set=one,
        caching=False,
    )


def list_superseded(servers: ServerSettings) -> list[str]:
    """Return the names of the index sets that are not in use: of a reindex, or replaced by one."""
    with closing(ElasticsearchConnection(servers)) as connection:
        return [one.name for one in IndexSets(connection, servers).superseded()]
