"""Queries over an open channel."""

from __future__ import annotations

from skills.events import QueryAsked, new_event, replace_origin
from tasks.journal.protocol import job_id
from tasks.query.context import check_query
from workers.backend.base import Backend
from workers.mcp.backends import QueryStatus

ORIGIN = "skillbus/mcp"


class JournalBackend:
    """Queries over an open channel. forgets: its journal is this process's alone, in memory."""

    def __init__(self, backend: Backend, *, in_memory: bool = False) -> None:
        self._backend = backend
        self._forgets = in_memory

    def submit_query(self, request: QueryAsked, owner: str) -> str:
        """Accept a query for the owner of a token, "" for the user of this machine."""
        settings, journal = self._backend.settings, self._backend.journal
        check_query(request, settings.limits.query_characters)
        event = replace_origin(new_event(request, ORIGIN), owner)
        if self._forgets:
            journal.delete_ended_jobs("query", settings.workers.query_seconds)
        self._backend.accept_if_new(event)
        return job_id(event)

    def get_query_status(self, query_id: str) -> QueryStatus:
        """How a query stands by the journal."""
        job = self._backend.journal.get_job(query_id)
        stages = self._backend.journal.list_stages(query_id) if job.state == "accepted" else ()
        return QueryStatus(job.state, tuple(stages), job.outcome, job.reason)

    def cancel(self, query_id: str) -> None:
        """End the query in the journal."""
        self._backend.journal.cancel_job(query_id)
