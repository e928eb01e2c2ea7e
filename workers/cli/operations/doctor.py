"""`doctor`: checks the deployment and prints a remedy for each problem."""

from __future__ import annotations

import click

from config.settings import Settings
from workers.cli.common import json_option, print_list, read_settings
from workers.cli.exit_codes import EXIT_FAILED


@click.command()
@json_option
def doctor() -> None:
    """Check models, stores or servers, workers and sources.

    A failed check says what to do; the exit code is then 1. Servers are checked in parallel, each
    for at most servers.timeout_seconds.
    """
    results = run_all_checks(read_settings())
    print_list(results, ("check", "state", "detail"))
    if any(result["state"] == "failed" for result in results):
        raise click.exceptions.Exit(EXIT_FAILED)


def run_all_checks(settings: Settings) -> list[dict[str, str]]:
    """Return the result of every check of the deployment: check, state (`ok`,
    `failed`) and detail."""
    # Imports are slow, and each deployment needs only its own.
    from workers.monitoring.local_checks import (
        library_checks,
        machine_checks,
        run_checks,
        run_checks_in_parallel,
    )

    if not settings.distributed:
        return run_checks({**machine_checks(settings), **library_checks(settings)})
    from workers.monitoring.server_checks import server_checks

    return [
        *run_checks(machine_checks(settings)),
        *run_checks_in_parallel(server_checks(settings), settings.servers.timeout_seconds),
    ]
