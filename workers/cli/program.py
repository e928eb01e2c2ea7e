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
    "sync": ("library.sync", "Sync the library with a directory of skills."),
    "watch": ("library.watch", "Sync a directory, then follow its changes until interrupted."),
    "upload": ("library.upload", "Upload skills: a SKILL.md, a zip or tar, or a folder."),
    "query": ("library.query", "Find the skills for a task, and the passages that it needs."),
    "outcome": ("outcomes.report", "Report the outcome of a skill for the task of a query."),
    "outcomes": ("outcomes.manage", "Export, count and forget reported outcomes."),
    "refine": ("library.refine", "Refine published skills with the language model."),
    "skills": ("library.skills", "List, show, compare and remove skills."),
    "pins": ("library.pins", "Pin skills to a revision; list, compare and remove pins."),
    "review": ("library.review", "Review withheld skills, and updates before publication."),
    "waivers": ("library.waivers", "Waive findings in single skills; list and remove waivers."),
    "links": ("library.links", "Dismiss links between skills, list and restore dismissed links."),
    "sources": ("library.sources", "Add git repositories; list, refresh and remove sources."),
    "findings": ("library.findings", "List the findings of the scanner in published skills."),
    "failures": ("library.failures", "List skills that could not be ingested, with the reason."),
    "status": ("operations.status", "Show the state of the library and of pending work."),
    "usage": ("operations.usage", "Show how often skills were chosen, sent, used, and helped."),
    "doctor": ("operations.doctor", "Check models, stores or servers, workers and sources."),
    "dead": ("operations.dead", "List, retry and discard dead letters."),
    "config": ("operations.config", "Show settings."),
    "serve": ("processes", "Run workers, watcher and gateway until interrupted."),
    "gateway": ("processes", "Serve HTTP for a distributed deployment until interrupted."),
    "tokens": ("operations.tokens", "Add, list and revoke access tokens."),
    "audit": ("operations.audit", "List changes in this home with their authors, oldest first."),
    "mcp": ("processes", "Serve an agent over MCP on standard input and output."),
    "hook": ("operations.hook", "Add skills to each prompt of a coding agent."),
    "consume": ("processes", "Consume events and queries from a queue until interrupted."),
    "worker": ("processes", "Run tasks of a distributed deployment until interrupted."),
    "backup": ("operations.backup", "Copy the library into a new folder."),
    "restore": ("operations.backup", "Restore a backup to an empty home or empty servers."),
    "reindex": ("operations.reindex", "Rebuild the index; parse outdated skills again."),
    "eval": (
        "evaluation.eval:evaluate",
        "Measure ranking, bundles, passages and more on labelled data.",
    ),
    "train": ("training.train", "Train models on your own library and labels."),
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
    """Find the agent skills for a task, and the passages that it needs.

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
