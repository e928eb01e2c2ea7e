"""`upload`: copies skills from a file or a folder into the library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from config.errors import UsageError
from config.settings import Settings
from graph.records import CatalogEntry, SkillState
from tasks.sources.uploads.staging import StagedUpload, check_source_kind, stage_upload
from tasks.sources.uploads.store import open_upload_store
from workers.backend.factory import open_backend
from workers.backend.protocol import Backend
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    json_option,
    print_line,
    print_result,
    print_to_stderr,
    read_settings,
)
from workers.cli.exit_codes import EXIT_NEWLY_FAILED
from workers.cli.waiting import wait_for_event


@click.command()
@click.argument("what", metavar="FILE|FOLDER", type=click.Path(path_type=Path, exists=True))
@click.option("--source", "source_id", required=True, help="The source's id; created if it is new.")
@click.option(
    "--path",
    default="",
    help="The skill's path in the source [default: its path in the archive or folder].",
)
@json_option
@audited("skills.upload", "source_id", "path", "what")
def upload(what: Path, source_id: str, path: str) -> None:
    """Upload skills: a SKILL.md, a zip or tar, or a folder.

    The skills are copied and replace those at the same path. Returns when they are searchable.

    \b
    Examples:
      skillbus upload trips.zip --source team
      skillbus upload SKILL.md --source team --path trip-cleaning
    """
    settings = read_settings()
    with open_backend(settings, writable=True, embeds="skills") as backend:
        check_source_kind(backend.graph.list_sources(), source_id)
        staged = _stage_upload(settings, what, source_id, path)
        backend.accept(staged.event)
        report = _wait_for_upload(backend, staged)
    print_result(report, _print)
    if report["failed"]:
        raise click.exceptions.Exit(EXIT_NEWLY_FAILED)


def _stage_upload(settings: Settings, what: Path, source_id: str, path: str) -> StagedUpload:
    store = open_upload_store(settings)
    try:
        with store.staging() as place:
            return stage_upload(settings, store, place, what, source_id, path)
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}") from error


def _wait_for_upload(backend: Backend, staged: StagedUpload) -> dict[str, Any]:
    entries: Sequence[CatalogEntry] = ()

    def is_complete() -> bool:
        nonlocal entries
        entries = backend.graph.get_entries(list(staged.skill_ids))
        return not any(map(_is_waiting, entries))

    outcome = wait_for_event(
        backend,
        staged.event.id,
        is_complete=is_complete,
        stalled_hint="the upload is stored and will be processed",
    )
    failed = [entry for entry in entries if entry.state is SkillState.FAILED]
    return {
        "event": staged.event.id,
        "skills": list(staged.skill_ids),
        "changed": outcome.get("changed", 0),
        "left_out": staged.left_out,
        "failed": [{"skill_id": one.skill_id, "reason": one.reason} for one in failed],
    }


def _is_waiting(entry: CatalogEntry) -> bool:
    """Return whether the skill is not yet searchable by words and by meaning."""
    if entry.awaits_ingest:
        return True
    return entry.state is SkillState.PUBLISHED and not entry.has_vectors


def _print(report: dict[str, Any]) -> None:
    for skill_id in report["skills"]:
        print_line(skill_id)
    click.echo(
        f"{format_count(len(report['skills']), 'skill')}, {report['changed']} new or changed"
    )
    if report["left_out"]:
        print_to_stderr(f"ignored {format_count(report['left_out'], 'file')} outside any skill")
    for one in report["failed"]:
        print_to_stderr(f"failed: {one['skill_id']}: {one['reason']}")
