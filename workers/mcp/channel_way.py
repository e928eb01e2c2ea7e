"""Queries over an open channel."""

from __future__ import annotations

from skills.events import QueryAsked, new_event, with_origin
from tasks.journal.protocol import job_id
from tasks.query.pipeline import check
from workers.backend.channel import Channel
from workers.mcp.ways import Standing

ORIGIN = "skillbus/mcp"


class ChannelWay:
    """Queries over an open channel. forgets: its journal is this process's alone, in memory."""

    def __init__(self, channel: Channel, *, forgets: bool = False) -> None:
        self._channel = channel
        self._forgets = forgets

    def ask(self, asked: QueryAsked, owner: str) -> str:
        """Accept a query for the owner of a token, "" for the user of this machine."""
        settings, journal = self._channel.settings, self._channel.journal
        check(asked, settings.limits.query_characters)
        event = with_origin(new_event(asked, ORIGIN), owner)
        if self._forgets:
            journal.forget("query", settings.workers.query_seconds)
        self._channel.accept_once(event)
        return job_id(event)

    def look(self, query_id: str) -> Standing:
        """How a query stands by the journal."""
        job = self._channel.journal.job(query_id)
        stages = self._channel.journal.stages(query_id) if job.state == "accepted" else ()
        return Standing(job.state, tuple(stages), job.outcome, job.reason)

    def cancel(self, query_id: str) -> None:
        """End the query in the journal."""
        self._channel.journal.cancel(query_id)
