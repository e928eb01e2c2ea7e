"""Loading before the first task asks for it."""

from __future__ import annotations

import gc
from collections.abc import Collection

import structlog

from config.errors import PermanentError
from tasks.policies import EMBED_SECTIONS_QUEUE, INGEST_QUEUE, QUERY_QUEUE
from tasks.services import Services

log = structlog.get_logger()

_ENCODING_QUEUES = frozenset({INGEST_QUEUE, EMBED_SECTIONS_QUEUE, QUERY_QUEUE})


def warm_up(services: Services, queues: Collection[str]) -> None:
    """Load what tasks of these queues will ask for: models and, for queries, the library."""
    if _ENCODING_QUEUES.intersection(queues):
        services.encoder.get().encode(["warm up"])
    answers_queries = QUERY_QUEUE in queues
    if answers_queries:
        services.library.refresh()
    if answers_queries and services.reranker is not None:
        try:
            services.reranker.get()
        except PermanentError as error:  # every query will say so too
            log.error("reranker cannot be loaded", reason=str(error))
    # Models and library stay: collecting garbage need not look through them again, which
    # takes a tenth of a second in the middle of a query.
    gc.collect()
    gc.freeze()
