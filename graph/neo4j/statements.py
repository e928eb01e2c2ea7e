"""Runs the named Cypher statements of a store on one server, with or without transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from config.errors import TransientError, UsageError
from graph.adjacency_cache import CACHED_ROWS, AdjacencyCache
from graph.named_statements import load_statements
from graph.neo4j.client import Neo4jClient, Rows, Run
from graph.neo4j.migrations import check
from graph.neo4j.rows import ENTRY_COLUMNS, HAS_SCRIPTS, PARSER
from graph.neo4j.transactions import MissingLocksError
from graph.records import LinkType

T = TypeVar("T")

WRITE_BATCH = 200
READ_BATCH = 5_000
_MAX_LOCK_ROUNDS = 20
_LINK_TYPES = "|".join(kind.name for kind in LinkType)
_OWNED_LINKS = " UNION ALL ".join(
    f"MATCH ()-[r:{kind.name} {{owner: id}}]->() RETURN r" for kind in LinkType
)

_PLANNING = "CYPHER replan=skip"
"""Option that keeps the first plan of a statement. Each statement has one good plan, which is found
even in an empty database. Without the option, Neo4j plans each statement repeatedly in a growing
library, which takes 0.1 s and more each time, while queries wait."""

_SORT_COLUMNS = {
    "all_changes": 0,
    "all_entries": 0,
    "entries_below": 2,
    "entries_of_source": 2,
    "file_signatures": 0,
}
"""Statement that reads pages -> index of the value by which its rows are sorted."""


class StatementRunner:
    """Base class of the Neo4j stores: statements by name, schema check, transactions with locks."""

    def __init__(self, server: Neo4jClient, *, writable: bool) -> None:
        self._server = server
        self._writable = writable
        self._adjacency_cache = AdjacencyCache(CACHED_ROWS)
        self._statements: dict[str, str] = {}
        for file in ("catalog.cypher", "links.cypher"):
            planned_once = {n: f"{_PLANNING}\n{text}" for n, text in _load(file).items()}
            self._statements |= planned_once
        self._statements |= _load("passages.cypher")
        self._lock = threading.Lock()
        self._checked = False

    def _read(self, name: str, **parameters: object) -> Rows:
        self._check_schema()
        return self._server.read(self._statements[name], **parameters)

    def _read_from_leader(self, name: str, **parameters: object) -> Rows:
        """Read from the leader, so that no commit is missed in a cluster with lagging readers."""
        self._check_schema()
        return self._server.write(self._statements[name], **parameters)

    def _write(self, name: str, **parameters: object) -> Rows:
        self._check_writable()
        return self._server.write(self._statements[name], **parameters)

    def _transact(self, work: Callable[[Run, bool], T]) -> T:
        """Run `work(run, retried)` as one transaction; `run` takes the name of a statement."""
        self._check_writable()

        def named(run: Run, retried: bool) -> T:
            return work(lambda name, **values: run(self._statements[name], **values), retried)

        return self._server.run_transaction(named)

    def _transact_with_locks(self, work: Callable[..., T]) -> T:
        """Run `work(run, retried, extra_locks)` as one transaction.

        After a MissingLocksError it is repeated with the missing skills in `extra_locks`.
        """
        extra_locks: set[str] = set()
        for _ in range(_MAX_LOCK_ROUNDS):
            try:
                return self._transact(partial(work, extra_locks=frozenset(extra_locks)))
            except MissingLocksError as error:
                extra_locks |= error.skill_ids
        raise TransientError(
            f"concurrent writers interfered {_MAX_LOCK_ROUNDS} times in the catalog at "
            f"{self._server.address}",
            public_message="concurrent writers interfered in the catalog",
        )

    def _pages(self, name: str, **parameters: object) -> Iterator[Rows]:
        """Yield pages of rows of a statement with the parameters `limit` and `after`."""
        column, after = _SORT_COLUMNS[name], ""
        while page := self._read(name, after=after, limit=READ_BATCH, **parameters)[0][0]:
            yield page
            if len(page) < READ_BATCH:
                break
            # Values of nodes that are deleted meanwhile are null.
            after = next(row[column] for row in reversed(page) if row[column] is not None)

    def _check_writable(self) -> None:
        if not self._writable:
            raise UsageError(f"the catalog at {self._server.address} was opened for reading only")
        self._check_schema()

    def _check_schema(self) -> None:
        if not self._checked:
            with self._lock:
                check(self._server)
                self._checked = True


def _load(file: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in load_statements("graph.neo4j", "cypher", file).items():
        text = text.replace("$$links", _LINK_TYPES).replace("$$entry", ENTRY_COLUMNS)
        text = text.replace("$$has_scripts", HAS_SCRIPTS).replace("$$parser", PARSER)
        text = text.replace("$$owned", f"CALL (id) {{ {_OWNED_LINKS} }}")
        if "$$type" in text:
            found |= {f"{name}_{kind}": text.replace("$$type", kind.name) for kind in LinkType}
        else:
            found[name] = text
    return found
