"""Queries of evaluations."""

from __future__ import annotations

from dataclasses import replace

from config.errors import UsageError
from skills.bundle.model import Bundle
from skills.events import QueryAsked
from tasks.policies import Deadline
from tasks.query.pipeline import answer_query
from tasks.query.session.state import Asker
from tasks.services import Services

SECONDS = 600.0
"""Time limit of a query; long, so that no query fails or leaves out links on a busy machine."""


def ask(
    services: Services, query_id: str, request: QueryAsked, asker: Asker | None = None
) -> Bundle:
    """Answer a query with all servers, since figures without one would not be those of the library.

    Raises TransientError if a server does not answer, and UsageError with the id for an invalid
    query.
    """
    services = replace(services, circuit_breakers=None)
    try:
        return answer_query(
            services, Deadline(SECONDS), query_id, request, asker=asker, wanted_seconds=SECONDS
        ).bundle
    except UsageError as error:
        raise type(error)(f"{query_id}: {error}") from error
