"""The checks of a deployment: all of them for `doctor`, the quick ones for the console."""

from __future__ import annotations

from config.settings import Settings
from workers.monitoring.local_checks import (
    Check,
    library_checks,
    machine_checks,
    run_checks,
    run_checks_in_parallel,
)

_SLOW = ("encoder", "reranker", "language model", "index", "revisions", "oidc")
"""Checks that load a model, call another service or read the whole index."""


def check_deployment(settings: Settings, *, quick: bool = False) -> list[dict[str, str]]:
    """Return the results of the checks: check, state (`ok`, `failed`) and detail.

    Servers are checked in parallel. quick: leaves the slow checks out.
    """

    def choose(checks: dict[str, Check]) -> dict[str, Check]:
        return {name: run for name, run in checks.items() if not (quick and name in _SLOW)}

    results = run_checks(choose(machine_checks(settings)))
    if not settings.distributed:
        return results + run_checks(choose(library_checks(settings)))
    from workers.monitoring.server_checks import server_checks  # slow to import

    servers = choose(server_checks(settings))
    return results + run_checks_in_parallel(servers, settings.servers.timeout_seconds)
