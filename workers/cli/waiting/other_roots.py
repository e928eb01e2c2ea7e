"""Missing roots of other sources, which do not concern a sync of one source."""

from __future__ import annotations

from tasks.sources.directory import describe_missing_root
from workers.backend.protocol import Backend
from workers.cli.common import print_to_stderr


class OtherRoots:
    """Leaves the other sources out of what a sync waits for, once the root of one is missing."""

    def __init__(self, backend: Backend, source_id: str) -> None:
        self._backend = backend
        self._source_id = source_id
        self._is_missing = False

    def find_problem(self) -> str:
        """Return why processing is stalled, "" if only the root of another source is missing, which
        is noted once."""
        problem = self._backend.get_problem()
        if not problem:
            return ""
        others = [
            describe_missing_root(one.root)
            for one in self._backend.graph.list_sources()
            if one.source_id != self._source_id
        ]
        if problem not in others:
            return problem
        if not self._is_missing:
            print_to_stderr(f"warning: {problem}")
        self._is_missing = True
        return ""

    def count_waiting(self, waiting: int) -> int:
        """Return how many skills wait for ingest. waiting: their number in the library."""
        if not waiting or not self._is_missing:
            return waiting
        entries = self._backend.graph.list_awaiting_ingest(waiting)
        return sum(entry.source_id == self._source_id for entry in entries)
