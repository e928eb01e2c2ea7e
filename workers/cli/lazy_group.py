"""Groups of commands that are imported when they are called, so that each starts fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import click
from typing_extensions import override


class LazyGroup(click.Group):
    """A group that imports a command on use.

    table: name of each command -> its module in `workers.cli`, with `:function` if that has another
    name, and the first sentence of its help; in the order in which a new user needs them.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._table = table
        # For an unknown name, click suggests similar ones of these.
        self.commands = dict.fromkeys(table, click.Command(None))

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        _import_structlog()
        module, _, name = self._table[cmd_name][0].partition(":")
        command: click.Command = getattr(
            importlib.import_module(f"workers.cli.{module}"), name or cmd_name
        )
        return command

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self._table.items()])


def _import_structlog() -> None:
    """Import structlog without rich, which it uses only for tracebacks of a form that no log here
    has, and which takes a tenth of the time of a command to import."""
    if not {"structlog", "rich"}.intersection(sys.modules):
        sys.modules["rich"] = None  # type: ignore[assignment]  # blocks imports
        import structlog  # noqa: F401 - for the modules that import it later

        del sys.modules["rich"]
