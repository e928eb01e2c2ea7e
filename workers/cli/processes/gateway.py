"""`gateway`: serves the HTTP API of a distributed deployment."""

from __future__ import annotations

import click

from workers.cli.common import print_to_stderr, read_settings


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8765",
    show_default=True,
    help="Address to listen on; other than loopback only if a token exists.",
)
@click.option(
    "--unprotected",
    is_flag=True,
    help="Allow any address without a token; use it only behind another access control.",
)
def gateway(listen: str, unprotected: bool) -> None:
    """Serve HTTP for a distributed deployment until interrupted.

    For an embedded library use `skillbus serve --listen`.

    \b
    Example:
      skillbus tokens add agents
      skillbus gateway --listen 127.0.0.1:8765
    """
    from workers.processes.gateway import run_gateway
    from workers.processes.http_server import resolve_listen_address

    settings = read_settings(long_running=True)
    run_gateway(
        settings,
        resolve_listen_address(settings, listen, unprotected),
        print_to_stderr,
        unprotected,
    )
