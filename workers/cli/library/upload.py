"""`upload`: skills by value, from a file or a folder that is read once."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from config.errors import PermanentError, TransientError, UsageError
from config.settings import Settings
from graph.protocol import Entry, State
from tasks.sources.uploads.intake import Upload, check_kind, take_in
from tasks.sources.uploads.store import upload_store
from workers.cli import NEWLY_FAILED
from workers.cli.common import json_option, print_json, read_settings
from workers.cli.library.sync import Way

_POLL_SECONDS = 0.1


@click.command()
@click.argument("what", metavar="FILE|FOLDER", type=click.Path(path_type=Path, exists=True))
@click.option("--source", "source_id", required=True, help="The source's id; made if it is new.")
@click.option(
    "--path",
    default="",
    help="The skill's path in the source [default: as the archive or the folder names it].",
)
@json_option
@click.pass_context
def upload(ctx: click.Context, what: Path, source_id: str, path: str, as_json: bool) -> None:
    """Take skills in by value: a SKILL.md, a zip or tar, or a folder.

    They are copied, and replace those of the same path; what happens to WHAT afterwards does not
    matter. Ends when queries find them.

    \b
    Examples:
      skillbus upload trips.zip --source team
      skillbus upload SKILL.md --source team --path trip-cleaning
    """
    settings = read_settings(ctx)
    with ExitStack() as stack:
        way = Way(settings, stack, paging=False)
        check_kind(way.graph.sources(), source_id)
        taken = _staged(settings, what, source_id, path)
        way.accept(taken.event)
        report = _followed(way, taken)
    _print(report, as_json)
    if report["failed"]:
        ctx.exit(NEWLY_FAILED)


def _staged(settings: Settings, what: Path, source_id: str, path: str) -> Upload:
    store = upload_store(settings)
    try:
        with store.staging() as place:
            return take_in(settings, store, place, what, source_id, path)
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}") from error


def _followed(way: Way, taken: Upload) -> dict[str, Any]:
    while True:
        state, reason, outcome = way.event(taken.event.id)
        if state == "failed":
            raise PermanentError(reason)
        entries = way.graph.entries(list(taken.skill_ids)) if state == "done" else []
        if state == "done" and not any(map(_waits, entries)):
            break
        if trouble := way.trouble():
            raise TransientError(f"{trouble}; nothing is lost, what was uploaded is kept")
        time.sleep(_POLL_SECONDS)
    failed = [entry for entry in entries if entry.state is State.FAILED]
    return {
        "event": taken.event.id,
        "skills": list(taken.skill_ids),
        "changed": outcome.get("changed", 0),
        "left_out": taken.left_out,
        "failed": [{"skill_id": one.skill_id, "reason": one.reason} for one in failed],
    }


def _waits(entry: Entry) -> bool:
    return entry.wanted_seq > entry.seq


def _print(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    for skill_id in report["skills"]:
        click.echo(skill_id)
    click.echo(f"{len(report['skills'])} skills, {report['changed']} new or changed")
    if report["left_out"]:
        click.echo(f"left out: {report['left_out']} files that belong to no skill", err=True)
    for one in report["failed"]:
        click.echo(f"failed: {one['skill_id']}: {one['reason']}", err=True)
