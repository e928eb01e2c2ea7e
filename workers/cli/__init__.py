"""The command line. Commands are imported when they are called: `--version` loads nothing heavy."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import version
from pathlib import Path

import click

from config.errors import MisconfiguredError, SkillbusError, UsageError

EXIT_FAILED, EXIT_USAGE, EXIT_NO_SKILL_HIT, EXIT_NEWLY_FAILED, EXIT_INTERRUPTED = 1, 2, 3, 4, 130

_COMMANDS = {
    "sync": "workers.cli.library.sync:sync",
    "watch": "workers.cli.library.sync:watch",
    "upload": "workers.cli.library.upload:upload",
    "query": "workers.cli.query:query",
    "skills": "workers.cli.library.skills:skills",
    "sources": "workers.cli.library.sources:sources",
    "failures": "workers.cli.library.skills:failures",
    "status": "workers.cli.operations.status:status",
    "doctor": "workers.cli.operations.doctor:doctor",
    "dead": "workers.cli.operations.dead_letters:dead",
    "config": "workers.cli.operations.status:config",
    "serve": "workers.cli.processes.serve:serve",
    "gateway": "workers.cli.processes.gateway:gateway",
    "tokens": "workers.cli.operations.tokens:tokens",
    "mcp": "workers.cli.processes.mcp:mcp",
    "consume": "workers.cli.processes.consume:consume",
    "worker": "workers.cli.processes.worker:worker",
    "reindex": "workers.cli.operations.reindex:reindex",
    "eval": "workers.cli.evaluation.evaluate:evaluate",
    "train": "workers.cli.training.train:train",
}


class _LazyGroup(click.Group):
    """A group whose commands are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of a user's first day."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("skillbus"), prog_name="skillbus")
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the library lies [SKILLBUS_HOME; default: the platform's data folder].",
)
@click.pass_context
def cli(ctx: click.Context, home: Path | None) -> None:
    """Keep agent skills searchable while they change, and answer tasks with bundles of them.

    \b
    Examples:
      skillbus sync ./skills
      skillbus query "turn the trip CSVs into a monthly PDF report"
      skillbus serve
    """
    ctx.obj = home


def main() -> None:
    """Run the command line; exit 0 done, 1 failed, 2 usage, 3 NO_SKILL_HIT, 4 newly failed."""
    try:
        # Commands return nothing; what comes back is the code of `Context.exit`.
        sys.exit(cli.main(prog_name="skillbus", standalone_mode=False))
    except click.exceptions.Abort:
        _exit_with_message(
            "interrupted; what was accepted goes on with the next run", EXIT_INTERRUPTED
        )
    except KeyboardInterrupt:
        _exit_with_message(
            "interrupted; what was accepted goes on with the next run", EXIT_INTERRUPTED
        )
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (UsageError, MisconfiguredError) as error:
        _exit_with_message(str(error), EXIT_USAGE)
    except SkillbusError as error:
        _exit_with_message(str(error), EXIT_FAILED)
    except BrokenPipeError:
        # The reader of our output has gone; what is left unprinted has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)


def _exit_with_message(message: str, code: int) -> None:
    click.echo(f"skillbus: {message}", err=True)
    sys.exit(code)
