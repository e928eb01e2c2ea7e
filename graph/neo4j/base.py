"""What the parts of the Neo4j catalog share: the server, its statements, and who may write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from config.errors import TransientError, UsageError
from graph.named_statements import load_statements
from graph.neo4j.adjacency_cache import AdjacencyCache
from graph.neo4j.client import Neo4jClient, Rows, Run
from graph.neo4j.migrations import check
from graph.neo4j.transactions import MissingLocksError
from graph.protocol import LinkType

T = TypeVar("T")

WRITE_BATCH = 200
READ_BATCH = 5_000
_MAX_LOCK_ROUNDS = 20
_LINKS = "|".join(kind.name for kind in LinkType)
_OWNED = " UNION ALL ".join(
    f"MATCH ()-[r:{kind.name} {{owner: id}}]->() RETURN r" for kind in LinkType
)


class Neo4jStore:
    """Named statements on one server."""

    def __init__(self, server: Neo4jClient, *, writable: bool, cached_rows: int) -> None:
        self._server = server
        self._writable = writable
        self._adjacency_cache = AdjacencyCache(cached_rows)
        self._statements: dict[str, str] = {}
        for file in ("catalog.cypher", "links.cypher"):
            planned_once = {n: f"{_PLANNING}\n{text}" for n, text in _statements(file).items()}
            self._statements |= planned_once
        self._statements |= _statements("passages.cypher")
        self._lock = threading.Lock()
        self._checked = False

    def _read(self, name: str, **parameters: object) -> Rows:
        self._check_schema()
        return self._server.read(self._statements[name], **parameters)

    def _write(self, name: str, **parameters: object) -> Rows:
        self._check_writable()
        return self._server.write(self._statements[name], **parameters)

    def _transact(self, work: Callable[[Run, bool], T]) -> T:
        """`work(run, again)` as one transaction; its statements are called by their names."""
        self._check_writable()

        def named(run: Run, retried: bool) -> T:
            return work(lambda name, **values: run(self._statements[name], **values), retried)

        return self._server.run_transaction(named)

    def _transact_with_locks(self, work: Callable[..., T]) -> T:
        """`work(run, again, also)` likewise, until it has foreseen whom it has to lock."""
        extra_locks: set[str] = set()
        for _ in range(_MAX_LOCK_ROUNDS):
            try:
                return self._transact(partial(work, extra_locks=frozenset(extra_locks)))
            except MissingLocksError as error:
                extra_locks |= error.skill_ids
        raise TransientError(
            f"other writers were in the way {_MAX_LOCK_ROUNDS} times in the catalog at "
            f"{self._server.address}"
        )

    def _pages(self, name: str, **parameters: object) -> Iterator[Rows]:
        """Pages of entries by a statement that takes `limit` and `after`."""
        key, after = _PAGED_BY[name], ""
        while page := self._read(name, after=after, limit=READ_BATCH, **parameters)[0][0]:
            yield page
            if len(page) < READ_BATCH:
                break
            after = page[-1][key]

    def _check_writable(self) -> None:
        if not self._writable:
            raise UsageError(f"the catalog at {self._server.address} was opened for reading only")
        self._check_schema()

    def _check_schema(self) -> None:
        if not self._checked:
            with self._lock:
                check(self._server)
                self._checked = True


def batches(items: Sequence[T], size: int = WRITE_BATCH) -> Iterator[Sequence[T]]:
    """The items in order, `size` at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _statements(file: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in load_statements("graph.neo4j", "cypher", file).items():
        text = text.replace("$$links", _LINKS)
        text = text.replace("$$owned", f"CALL (id) {{ {_OWNED} }}").replace("$$entry", _ENTRY)
        if "$$type" in text:
            found |= {f"{name}_{kind}": text.replace("$$type", kind.name) for kind in LinkType}
        else:
            found[name] = text
    return found


_PLANNING = "CYPHER replan=skip"
"""A plan once made is kept. Each has one good plan, found in an empty database too, and a library
that grows would have every statement planned again and again, a tenth of a second and more each
time, while queries wait."""

_PAGED_BY = {"all_entries": 0, "entries_of_source": 2, "entries_below": 2}
"""Which value of an entry a statement's pages are sorted by."""

_ENTRY = """s.skill_id, s.source_id, s.path, s.state, s.name, s.description, s.seq,
    s.content_hash, s.wanted_seq, s.reason, s.warnings, s.safety_level, s.tokens, s.language,
    s.licence, s.paged, s.updated, s.scanner"""
"""The values of an `Entry` in its order; what is empty is not stored."""
