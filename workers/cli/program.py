"""The program `skillbus`: the table of its commands, and what all of them share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import click

from config.errors import MisconfiguredError, SkillbusError, UsageError
from workers.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from workers.cli.lazy_group import LazyGroup
from workers.cli.parameter_types import FolderPath

_COMMANDS = {
    "sync": "workers.cli.library.sync:sync",
    "watch": "workers.cli.library.watch:watch",
    "upload": "workers.cli.library.upload:upload",
    "query": "workers.cli.library.query:query",
    "outcome": "workers.cli.outcomes.report:outcome",
    "outcomes": "workers.cli.outcomes.manage:outcomes",
    "refine": "workers.cli.library.refine:refine",
    "skills": "workers.cli.library.skills:skills",
    "pins": "workers.cli.library.pins:pins",
    "review": "workers.cli.library.review:review",
    "waivers": "workers.cli.library.waivers:waivers",
    "links": "workers.cli.library.links:links",
    "sources": "workers.cli.library.sources:sources",
    "findings": "workers.cli.library.findings:findings",
    "failures": "workers.cli.library.failures:failures",
    "status": "workers.cli.operations.status:status",
    "usage": "workers.cli.operations.usage:usage",
    "doctor": "workers.cli.operations.doctor:doctor",
    "dead": "workers.cli.operations.dead:dead",
    "config": "workers.cli.operations.config:config",
    "serve": "workers.cli.processes:serve",
    "gateway": "workers.cli.processes:gateway",
    "tokens": "workers.cli.operations.tokens:tokens",
    "audit": "workers.cli.operations.audit:audit",
    "mcp": "workers.cli.processes:mcp",
    "hook": "workers.cli.operations.hook:hook",
    "consume": "workers.cli.processes:consume",
    "worker": "workers.cli.processes:worker",
    "backup": "workers.cli.operations.backup:backup",
    "restore": "workers.cli.operations.backup:restore",
    "reindex": "workers.cli.operations.reindex:reindex",
    "eval": "workers.cli.evaluation.eval:evaluate",
    "train": "workers.cli.training.train:train",
}

_CELERY_VARIABLES = (
    "CELERY_BROKER_URL",
    "CELERY_BROKER_READ_URL",
    "CELERY_BROKER_WRITE_URL",
    "CELERY_RESULT_BACKEND",
)
"""Variables of other Celery projects, which Celery would use instead of the broker settings."""


@click.command(
    cls=LazyGroup, table=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(version("skillbus"), prog_name="skillbus")
@click.option(
    "--home",
    type=FolderPath(path_type=Path, file_okay=False),
    help="Folder of the library [SKILLBUS_HOME; default: the platform's data folder].",
)
@click.pass_context
def cli(ctx: click.Context, home: Path | None) -> None:
    """Search agent skills: find the skills, and the passages of them, that a task needs.

    \b
    Examples:
      skillbus sync ./skills
      skillbus query "turn the trip CSVs into a monthly PDF report"
      skillbus serve
    """
    ctx.obj = home


def main() -> None:
    """Run the command line; exit 0 done, 1 failed, 2 usage, 3 NO_SKILL_HIT, 4 newly failed."""
    for name in _CELERY_VARIABLES:
        os.environ.pop(name, None)
    _open_closed_streams()
    try:
        _check_arguments(sys.argv[1:])
        # Commands return None; the result is the code of `Context.exit`.
        sys.exit(cli.main(prog_name="skillbus", standalone_mode=False))
    except (click.exceptions.Abort, KeyboardInterrupt):
        _exit_with_message("interrupted; accepted work resumes with the next run", EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (UsageError, MisconfiguredError) as error:
        _exit_with_message(str(error), EXIT_USAGE)
    except SkillbusError as error:
        _exit_with_message(str(error), EXIT_FAILED)
    except OSError as error:  # such as a full disk below standard output, whose rest is discarded
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        where = f"{error.filename}: " if error.filename else ""
        _exit_with_message(f"{where}{error.strerror or error}", EXIT_FAILED)


def _open_closed_streams() -> None:
    """Have a standard stream that the caller closed read nothing, and discard what is written."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _check_arguments(arguments: Iterable[str]) -> None:
    """Raise UsageError for an argument that is not UTF-8: no store can write it."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {argument!r} is not UTF-8; convert it") from None


def _exit_with_message(message: str, code: int) -> None:
    from skills.bundle.escaping import show_invisible  # only needed here

    click.echo(f"skillbus: {show_invisible(message)}", err=True)
    sys.exit(code)
