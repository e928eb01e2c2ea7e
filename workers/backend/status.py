"""Reads the status of a deployment without opening its backend, which takes long."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from config.settings import Settings
from workers.backend.factory import find_serve


def read_status(settings: Settings) -> dict[str, Any]:
    """Return the status of a deployment; servers that do not answer are reported in it.

    The status of an embedded library comes from a running `serve`, else from its files. Raises
    UsageError if there is no library.
    """
    if settings.distributed:
        return _read_servers(settings)
    serve = find_serve(settings)
    if serve is None:
        return _read_home(settings)
    with serve:
        return serve.get_status()


# Imports are inside the functions: they are slow, and each deployment needs only its own.
def _read_home(settings: Settings) -> dict[str, Any]:
    from workers.backend.model_stores import open_answers
    from workers.backend.stores import (
        open_graph,
        open_index,
        open_journal,
        open_outcomes,
        open_review_store,
    )
    from workers.library.review.review_list import ReviewLister
    from workers.monitoring.status import home_status

    with ExitStack() as stack:
        graph = open_graph(settings, stack, writable=False)
        journal = open_journal(settings, stack, writable=True)
        answers = open_answers(settings, stack)
        outcomes = open_outcomes(settings, stack)
        reviews = ReviewLister(
            settings,
            graph,
            lambda keys: open_index(settings, stack, writable=False).get_revisions(keys),
            open_review_store(settings, stack),
        )
        return home_status(
            *(settings, graph, journal),
            serving=False,
            answers=answers,
            outcomes=outcomes,
            reviews=reviews,
        )


def _read_servers(settings: Settings) -> dict[str, Any]:
    from workers.backend.distributed import create_client_app
    from workers.monitoring.deployment_status import DeploymentStatus

    app = create_client_app(settings)
    deployment_status = DeploymentStatus(settings, app)
    try:
        return deployment_status.get_status(settings.servers.timeout_seconds)
    finally:
        deployment_status.close()
        app.close()
