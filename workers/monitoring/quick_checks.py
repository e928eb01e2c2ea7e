"""The checks of `doctor` that load no model and do not read the whole index."""

from __future__ import annotations

from config.settings import Settings
from workers.monitoring.local_checks import (
    library_checks,
    machine_checks,
    run_checks,
    run_checks_in_parallel,
)

_SLOW = ("encoder", "reranker", "language model", "index", "revisions", "oidc")


def run_quick_checks(settings: Settings) -> list[dict[str, str]]:
    """Return the results of the quick checks: check, state (`ok`, `failed`) and detail."""
    machine = {name: run for name, run in machine_checks(settings).items() if name not in _SLOW}
    if not settings.distributed:
        library = {name: run for name, run in library_checks(settings).items() if name not in _SLOW}
        return run_checks({**machine, **library})
    from workers.monitoring.server_checks import server_checks  # slow to import

    servers = {name: run for name, run in server_checks(settings).items() if name not in _SLOW}
    seconds = settings.servers.timeout_seconds
    return [*run_checks(machine), *run_checks_in_parallel(servers, seconds)]
