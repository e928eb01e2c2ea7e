"""`serve`: runs workers, watcher and gateway in one process."""

from __future__ import annotations

import click

from workers.cli.common import print_to_stderr, read_settings


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Serve HTTP on a port too; other than loopback only if a token exists.",
)
@click.option(
    "--unprotected",
    is_flag=True,
    help="Allow any address without a token; use it only behind another access control.",
)
def serve(listen: str | None, unprotected: bool) -> None:
    """Run workers, watcher and gateway until interrupted.

    Other commands use them. Every directory that was synced is watched. The gateway answers on
    `serve.sock` in the home.

    \b
    Examples:
      skillbus serve
      skillbus serve --listen 127.0.0.1:8765
    """
    from workers.processes.http_server import resolve_listen_address
    from workers.processes.serve import run_serve

    settings = read_settings(long_running=True)
    address = None
    if listen is not None:
        address = resolve_listen_address(settings, listen, unprotected)
    run_serve(settings, address, print_to_stderr, unprotected)
