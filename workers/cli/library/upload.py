"""`upload`: skills by value, from a file or a folder that is read once."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from config.errors import PermanentError, TransientError, UsageError
from config.settings import Settings
from graph.records import CatalogEntry, SkillState
from tasks.sources.uploads.staging import StagedUpload, check_source_kind, stage_upload
from tasks.sources.uploads.store import open_upload_store
from workers.cli import EXIT_NEWLY_FAILED
from workers.cli.common import json_option, print_json, read_settings
from workers.cli.library.sync import EventClient

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
        event_client = EventClient(settings, stack, embed_sections=False)
        check_source_kind(event_client.graph.list_sources(), source_id)
        staged = _stage_upload(settings, what, source_id, path)
        event_client.accept(staged.event)
        report = _wait_for_upload(event_client, staged)
    _print(report, as_json)
    if report["failed"]:
        ctx.exit(EXIT_NEWLY_FAILED)


def _stage_upload(settings: Settings, what: Path, source_id: str, path: str) -> StagedUpload:
    store = open_upload_store(settings)
    try:
        with store.staging() as place:
            return stage_upload(settings, store, place, what, source_id, path)
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}") from error


def _wait_for_upload(event_client: EventClient, staged: StagedUpload) -> dict[str, Any]:
    while True:
        state, reason, outcome = event_client.get_event_state(staged.event.id)
        if state == "failed":
            raise PermanentError(reason)
        entries = event_client.graph.get_entries(list(staged.skill_ids)) if state == "done" else []
        if state == "done" and not any(map(_is_waiting, entries)):
            break
        if trouble := event_client.trouble():
            raise TransientError(f"{trouble}; nothing is lost, what was uploaded is kept")
        time.sleep(_POLL_SECONDS)
    failed = [entry for entry in entries if entry.state is SkillState.FAILED]
    return {
        "event": staged.event.id,
        "skills": list(staged.skill_ids),
        "changed": outcome.get("changed", 0),
        "left_out": staged.left_out,
        "failed": [{"skill_id": one.skill_id, "reason": one.reason} for one in failed],
    }


def _is_waiting(entry: CatalogEntry) -> bool:
    return entry.requested_seq > entry.seq


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
