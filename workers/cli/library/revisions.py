"""`skills history`, `skills diff`, and `skills show SKILL_ID@SEQ`: earlier revisions of skills."""

from __future__ import annotations

from typing import Any

import click

from config.errors import UsageError
from config.settings import Settings
from skills.bundle.escaping import show_invisible
from workers.backend.factory import open_backend, open_revision_reader
from workers.cli.audited import audited
from workers.cli.common import (
    ask,
    format_count,
    json_option,
    print_line,
    print_list,
    print_result,
    print_to_stderr,
    read_settings,
    shorten,
    wants_json,
)

_ROW = ("seq", "state", "published_at", "safety_level", "lines", "licence", "withheld")


@click.command("history")
@click.argument("skill_id")
@json_option
def show_history(skill_id: str) -> None:
    """List the revisions of a skill that can be read, newest first.

    `history.revisions` sets how many superseded revisions are kept.

    \b
    Example:
      skillbus skills history examples:trip-cleaning
    """
    from workers.library.revisions import revision_row  # slow to import

    with open_revision_reader(read_settings()) as reader:
        rows = [revision_row(one) for one in reader.list_revisions(skill_id)]
    print_list(rows, _ROW, "no revision is kept")


@click.command("diff")
@click.argument("revision", metavar="SKILL_ID[@SEQ]")
@click.argument("seq", type=click.IntRange(min=1), required=False)
@json_option
def show_diff(revision: str, seq: int | None) -> None:
    """Compare two revisions: fields, files, findings and lines.

    Without numbers, compares the newest revision with the one before it; with SKILL_ID@SEQ, that
    revision with the newest, or with SEQ.

    \b
    Example:
      skillbus skills diff examples:trip-cleaning@12
    """
    from workers.library.revisions import compare  # slow to import

    with open_revision_reader(read_settings()) as reader:
        skill_id, first = reader.parse_name(revision)
        data = compare(*reader.choose_pair(skill_id, first, seq))
    print_result(data, print_diff)


@click.command("purge")
@click.argument("skill_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@audited("skills.purge", "skill_id")
def purge(skill_id: str, yes: bool) -> None:
    """Remove a skill and every trace of its text permanently.

    All of its revisions are removed. The text is also removed from the journal, saved answers, dead
    letters and answers of the language model. Backups, the source itself, and the files of Neo4j
    are not touched. Other files are rewritten, which takes time in proportion to the library.

    \b
    Example:
      skillbus skills purge team:with-a-password --yes
    """
    settings = read_settings()
    if not yes:
        with open_revision_reader(settings) as reader:
            reader.list_revisions(skill_id)  # refuses an unknown skill before it is asked about
        if not ask(f"Remove {skill_id} and all its revisions permanently?"):
            raise UsageError("nothing was removed; --yes skips the question")
    with open_backend(settings, writable=True, embeds="nothing") as backend:
        data = backend.purge_skill(skill_id)
    if settings.distributed:
        print_to_stderr(_LEFT_IN_NEO4J)
    counts = [
        format_count(data[name], noun) + rest
        for name, (noun, rest) in _PURGED.items()
        if data[name]
    ]
    print_result(data, f"{skill_id}: removed {', '.join(counts) or 'its entry'}")
    if data["comes_back"] and not wants_json():
        print_to_stderr(data["comes_back"])


_LEFT_IN_NEO4J = (
    "the files and logs of Neo4j may still hold name, description and quoted lines of the skill; "
    "to leave nothing there: `skillbus backup`, empty the servers, `skillbus restore`"
)
_PURGED = {
    "revisions": ("revision", " of the index"),
    "kept_revisions": ("earlier revision", ""),
    "jobs": ("job", ""),
    "dead_letters": ("dead letter", ""),
    "evaluated_prompts": ("mention", " in kept runs of `eval`"),
    "model_answers": ("answer", " of the language model"),
    "verdicts": ("verdict", ""),
}


def print_diff(data: dict[str, Any]) -> None:
    """Print a comparison of two revisions; the skill's text is escaped."""
    for one in data["fields"]:
        before, after = (shorten(one[name], 200) or "(none)" for name in ("before", "after"))
        print_line(f"{one['field']}: {before} -> {after}")
    for change, paths in data["files"].items():
        for path in paths:
            kind = "script" if change != "removed" and path in data["scripts"] else "file"
            print_line(f"{kind} {change}: {path}")
    for change, findings in data["findings"].items():
        for one in findings:
            line = f"level {one['level']}, {one['kind']}, {one['file']} line {one['line']}"
            print_line(f"finding {change}: {line}: {one['reason']}")
    if not data["diff"]:
        click.echo("SKILL.md has the same lines")
        return
    print_line(f"--- {data['skill_id']}@{data['from']}")
    print_line(f"+++ {data['skill_id']}@{data['to']}")
    for line in data["diff"]:
        click.echo(show_invisible(line))


def read_revision(settings: Settings, name: str) -> dict[str, Any] | None:
    """Return the revision `SKILL_ID@SEQ` as data; None if the name has no seq."""
    from workers.library.revisions import revision_detail  # slow to import

    with open_revision_reader(settings) as reader:
        skill_id, seq = reader.parse_name(name)
        return None if seq is None else revision_detail(reader.read_revision(skill_id, seq))
