"""`pins`: pins skills to a revision, and shows what changed in their sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from config.errors import UsageError
from workers.backend.factory import open_backend, open_revision_reader
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    json_option,
    print_line,
    print_list,
    print_result,
    read_settings,
    require_source,
    wants_json,
)
from workers.cli.library.revisions import print_diff
from workers.cli.waiting import wait_until_ingested


@click.group()
def pins() -> None:
    """Pin skills to a revision; list, compare and remove pins."""


@pins.command("add")
@click.argument("revision", metavar="SKILL_ID[@SEQ]", required=False)
@click.option("--source", "source_id", help="All skills of this source that are published now.")
@click.option("--reason", required=True, help="Reason; shown with the pin.")
@json_option
@audited("pins.add", "revision", "source_id")
def add(revision: str | None, source_id: str | None, reason: str) -> None:
    """Pin a skill to a revision, by default the published one.

    Newer content of its source is parsed, scanned and kept, but not published until `pins remove`.
    A pinned skill that its source removes is removed.

    \b
    Example:
      skillbus pins add team:deploy@12 --reason "13 was not reviewed"
    """
    from workers.library.pins import list_published_of  # slow to import

    if (revision is None) == (source_id is None):
        raise UsageError("name a skill, or a source with --source")
    settings = read_settings()
    wanted: Sequence[tuple[str, int | None]]
    with open_revision_reader(settings) as reader:
        if revision is not None:
            wanted = [reader.parse_name(revision)]
        else:
            require_source(reader.graph.list_sources(), source_id)
            wanted = [(one, None) for one in list_published_of(reader.graph, str(source_id))]
    with open_backend(settings, writable=True, embeds="nothing") as backend:
        added = [backend.pin_skill(skill_id, seq, reason) for skill_id, seq in wanted]
        wait_until_ingested(backend, [skill_id for skill_id, _ in wanted])
    print_result(added, _print_pins)


def _print_pins(added: list[dict[str, Any]]) -> None:
    for one in added:
        print_line(f"pinned: {one['skill_id']}@{one['seq']}")


@pins.command("list")
@json_option
def list_pins() -> None:
    """List the pinned skills with the reasons."""
    with open_revision_reader(read_settings()) as reader:
        rows = reader.describe_pins()
    print_list(rows, ("skill_id", "seq", "pinned_at", "reason"), "no pinned skills")


@pins.command("drift")
@click.argument("skill_id", required=False)
@json_option
def show_drift(skill_id: str | None) -> None:
    """Show the changes of sources that pins hold back.

    Without SKILL_ID, prints one line per pin; with it, the whole difference.
    """
    with open_revision_reader(read_settings()) as reader:
        rows = reader.find_drift(skill_id)
    print_result(rows, _print_drift)
    if skill_id is not None and rows[0]["change"] is not None and not wants_json():
        print_diff(rows[0]["change"])


def _print_drift(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print_line(f"{row['skill_id']}: {_summarize(row['change'])}")
    if not rows:
        click.echo("no pinned skills")


def _summarize(change: dict[str, Any] | None) -> str:
    if change is None:
        return "nothing is held back"
    parts = [f"+{change['added_lines']} -{change['removed_lines']} lines"]
    parts += [
        f"{format_count(len(found), name)} {kind}"
        for name in ("file", "finding")
        for kind, found in change[f"{name}s"].items()
        if found
    ]
    parts += [format_count(len(change["scripts"]), "script")] if change["scripts"] else []
    parts += [f"{one['field']} changed" for one in change["fields"]]
    return f"revision {change['to']} is held back: {', '.join(parts)}"


@pins.command("remove")
@click.argument("skill_id")
@audited("pins.remove", "skill_id")
def remove(skill_id: str) -> None:
    """Remove a pin.

    The skill is published with the current content of its source.

    \b
    Example:
      skillbus pins remove team:deploy
    """
    with open_backend(read_settings(), writable=True, embeds="nothing") as backend:
        backend.unpin_skill(skill_id)
        wait_until_ingested(backend, [skill_id])
    print_line(f"unpinned: {skill_id}")
