"""What callers asked lately at this gateway, in its memory."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from typing import NamedTuple

MAX_QUERIES = 20
"""Queries that are known of a caller."""

MAX_TASK_CHARACTERS = 200

_MAX_CALLERS = 1_000


class RecentQuery(NamedTuple):
    """A query. task: its beginning. asked: seconds since the epoch."""

    query_id: str
    task: str
    asked: float


class RecentQueries:
    """The newest queries of the callers that asked last; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_caller: OrderedDict[str, deque[RecentQuery]] = OrderedDict()

    def add(self, caller: str, query_id: str, task: str) -> None:
        """Note a query; one that was noted before, such as of a repeated request, stays."""
        with self._lock:
            queries = self._by_caller.setdefault(caller, deque(maxlen=MAX_QUERIES))
            self._by_caller.move_to_end(caller)
            if len(self._by_caller) > _MAX_CALLERS:
                self._by_caller.popitem(last=False)
            if all(one.query_id != query_id for one in queries):
                queries.append(RecentQuery(query_id, task[:MAX_TASK_CHARACTERS], time.time()))

    def get(self, caller: str) -> list[RecentQuery]:
        """Return the queries of a caller, the newest first."""
        with self._lock:
            return list(reversed(self._by_caller.get(caller, ())))
