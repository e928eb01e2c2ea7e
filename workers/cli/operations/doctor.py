"""`doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

import click

from config.settings import Settings
from workers.cli import FAILED
from workers.cli.common import json_option, print_json, print_table, read_settings


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check models, stores or servers, workers and sources, and say what to do.

    Servers are asked side by side, each for at most servers.timeout_seconds.
    """
    results = examine(read_settings(ctx))
    if as_json:
        print_json(results)
    else:
        print_table(
            [(result["check"], result["state"], result["detail"]) for result in results],
            ("check", "state", "detail"),
        )
    if any(result["state"] == "wrong" for result in results):
        ctx.exit(FAILED)


def examine(settings: Settings) -> list[dict[str, str]]:
    """The result of every check of the deployment: check, state (`good`, `wrong`) and detail."""
    from workers.monitoring.home_checks import (
        carry_out,
        carry_out_side_by_side,
        home_checks,
        machine_checks,
    )

    if not settings.distributed:
        return carry_out({**machine_checks(settings), **home_checks(settings)})
    from workers.monitoring.server_checks import server_checks

    return [
        *carry_out(machine_checks(settings)),
        *carry_out_side_by_side(server_checks(settings), settings.servers.timeout_seconds),
    ]
