"""`mcp`: serves the library to an agent."""

from __future__ import annotations

import click

from workers.cli.common import read_settings


@click.command()
def mcp() -> None:
    """Serve an agent over MCP on standard input and output.

    MCP is the Model Context Protocol. Agents start this command themselves. It uses a running
    `serve`, or the workers of a distributed deployment; without either, it loads the model and
    answers queries itself. It does not change the skills of the library.

    \b
    Example:
      claude mcp add skills -- skillbus mcp
    """
    from workers.mcp.stdio import run_stdio

    run_stdio(read_settings(is_server=True))
