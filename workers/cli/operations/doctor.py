"""`doctor`: checks the deployment and prints a remedy for each problem."""

from __future__ import annotations

import click

from workers.cli.common import json_option, print_list, read_settings
from workers.cli.exit_codes import EXIT_FAILED


@click.command()
@json_option
def doctor() -> None:
    """Check models, stores or servers, workers and sources.

    A failed check says what to do; the exit code is then 1. Servers are checked in parallel, each
    for at most servers.timeout_seconds.
    """
    from workers.monitoring.doctor import check_deployment  # slow to import

    results = check_deployment(read_settings())
    print_list(results, ("check", "state", "detail"))
    if any(result["state"] == "failed" for result in results):
        raise click.exceptions.Exit(EXIT_FAILED)
