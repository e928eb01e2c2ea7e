"""Loading before the first task asks for it."""

from __future__ import annotations

import gc

import structlog

from config.errors import PermanentError
from tasks.services import Services

log = structlog.get_logger()


def warm_up(services: Services, answers: bool = True) -> None:
    """Load the models and, for a process that answers queries, the library."""
    services.encoder.get().encode(["warm up"])
    if answers:
        services.library.refresh()
    if answers and services.reranker is not None:
        try:
            services.reranker.get()
        except PermanentError as error:  # every query will say so too
            log.error("reranker cannot be loaded", reason=str(error))
    # Models and library stay: collecting garbage need not look through them again, which
    # takes a tenth of a second in the middle of a query.
    gc.collect()
    gc.freeze()
