"""`gateway`: the HTTP API of a distributed deployment, as a process of its own."""

from __future__ import annotations

import click

from workers.cli.common import print_to_stderr, read_settings


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8765",
    show_default=True,
    help="Where to answer; beyond loopback only once there is a token.",
)
@click.option(
    "--unprotected",
    is_flag=True,
    help="Allow any address without a token: only where something else keeps others out.",
)
@click.pass_context
def gateway(ctx: click.Context, listen: str, unprotected: bool) -> None:
    """Answer over HTTP until interrupted; workers do the work.

    With an embedded library `skillbus serve --listen` is the gateway.

    \b
    Example:
      skillbus tokens add agents
      skillbus gateway --listen 127.0.0.1:8765
    """
    from workers.processes.gateway import run_gateway
    from workers.processes.http_server import resolve_listen_address

    settings = read_settings(ctx, long_running=True)
    run_gateway(
        settings,
        resolve_listen_address(settings, listen, unprotected),
        print_to_stderr,
        unprotected,
    )
