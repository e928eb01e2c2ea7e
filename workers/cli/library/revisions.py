"""`skills history`, `skills diff`, and `skills show SKILL_ID@SEQ`: earlier revisions of skills."""

from __future__ import annotations

from typing import Any

import click

from config.errors import UsageError
from config.settings import Settings
from skills.bundle.escaping import escape_terminal_line, show_invisible
from workers.backend.factory import open_backend, open_revision_reader
from workers.cli.audited import audited
from workers.cli.common import (
    ask,
    json_option,
    print_json,
    print_list,
    print_to_stderr,
    read_settings,
)

_ROW = ("seq", "state", "published_at", "safety_level", "lines", "licence", "withheld")


@click.command("history")
@click.argument("skill_id")
@json_option
@click.pass_context
def show_history(ctx: click.Context, skill_id: str, as_json: bool) -> None:
    """List the revisions of a skill that can be read, newest first.

    `history.revisions` sets how many superseded revisions are kept.

    \b
    Example:
      skillbus skills history examples:trip-cleaning
    """
    from workers.library.revisions import revision_row  # slow to import

    with open_revision_reader(read_settings(ctx)) as reader:
        rows = [revision_row(one) for one in reader.list_revisions(skill_id)]
    print_list(rows, as_json, _ROW, "no revision is kept")


@click.command("diff")
@click.argument("revision", metavar="SKILL_ID[@SEQ]")
@click.argument("seq", type=click.IntRange(min=1), required=False)
@json_option
@click.pass_context
def show_diff(ctx: click.Context, revision: str, seq: int | None, as_json: bool) -> None:
    """Compare two revisions: fields, files, findings and lines.

    Without numbers, compares the newest revision with the one before it; with SKILL_ID@SEQ, that
    revision with the newest, or with SEQ.

    \b
    Example:
      skillbus skills diff examples:trip-cleaning@12
    """
    from workers.library.revisions import compare  # slow to import

    with open_revision_reader(read_settings(ctx)) as reader:
        skill_id, first = reader.parse_name(revision)
        data = compare(*reader.choose_pair(skill_id, first, seq))
    if as_json:
        print_json(data)
    else:
        print_diff(data)


@click.command("purge")
@click.argument("skill_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
@audited("skills.purge", "skill_id")
def purge(ctx: click.Context, skill_id: str, yes: bool, as_json: bool) -> None:
    """Remove a skill and every trace of its text permanently.

    All of its revisions are removed. The text is also removed from the journal, saved answers, dead
    letters and answers of the language model. Backups, the source itself, and the files of Neo4j
    are not touched. Other files are rewritten, which takes time in proportion to the library.

    \b
    Example:
      skillbus skills purge team:with-a-password --yes
    """
    settings = read_settings(ctx)
    if not yes:
        with open_revision_reader(settings) as reader:
            reader.list_revisions(skill_id)  # refuses an unknown skill before it is asked about
        shown = escape_terminal_line(skill_id)
        if not ask(f"Remove {shown} and all its revisions permanently?"):
            raise UsageError("nothing was removed; `--yes` does not ask")
    with open_backend(settings, writable=True, embeds="nothing") as backend:
        data = backend.purge_skill(skill_id)
    if settings.distributed:
        print_to_stderr(_LEFT_IN_NEO4J)
    if as_json:
        print_json(data)
        return
    counts = [f"{data[name]} {words}" for name, words in _PURGED.items() if data[name]]
    click.echo(f"{escape_terminal_line(skill_id)}: removed {', '.join(counts) or 'its entry'}")
    if data["comes_back"]:
        print_to_stderr(escape_terminal_line(data["comes_back"]))


_LEFT_IN_NEO4J = (
    "the files and logs of Neo4j may still hold name, description and quoted lines of the skill; "
    "to leave nothing there: `skillbus backup`, empty the servers, `skillbus restore`"
)
_PURGED = {
    "revisions": "revisions of the index",
    "kept_revisions": "earlier revisions",
    "jobs": "events and answers",
    "dead_letters": "dead letters",
    "evaluated_prompts": "mentions in kept runs of `eval`",
    "model_answers": "answers of the language model",
    "verdicts": "verdicts",
}


def print_diff(data: dict[str, Any]) -> None:
    """Print a comparison of two revisions; the skill's text is escaped."""
    for one in data["fields"]:
        click.echo(f"{one['field']}: {_shorten(one['before'])} -> {_shorten(one['after'])}")
    for change, paths in data["files"].items():
        for path in paths:
            kind = "script" if change != "removed" and path in data["scripts"] else "file"
            click.echo(f"{kind} {change}: {escape_terminal_line(path)}")
    for change, findings in data["findings"].items():
        for one in findings:
            line = f"level {one['level']}, {one['kind']}, {one['file']} line {one['line']}"
            click.echo(escape_terminal_line(f"finding {change}: {line}: {one['reason']}"))
    if not data["diff"]:
        click.echo("SKILL.md has the same lines")
        return
    name = escape_terminal_line(data["skill_id"])
    click.echo(f"--- {name}@{data['from']}\n+++ {name}@{data['to']}")
    for line in data["diff"]:
        click.echo(show_invisible(line))


def _shorten(text: str, characters: int = 200) -> str:
    shown = escape_terminal_line(text) or "(none)"
    return shown if len(shown) <= characters else f"{shown[: characters - 1]}…"


def print_revision(settings: Settings, name: str, as_json: bool) -> bool:
    """Print the revision `SKILL_ID@SEQ`; return False if the name has no seq."""
    from workers.library.revisions import revision_detail  # slow to import

    with open_revision_reader(settings) as reader:
        skill_id, seq = reader.parse_name(name)
        if seq is None:
            return False
        data = revision_detail(reader.read_revision(skill_id, seq))
    if as_json:
        print_json(data)
        return True
    text = data.pop("text")
    for key, value in data.items():
        if isinstance(value, list):
            for one in value:
                line = ", ".join(f"{name} {part}" for name, part in one.items())
                click.echo(escape_terminal_line(f"{key}: {line}"))
        elif value not in (None, ""):
            click.echo(f"{key}: {escape_terminal_line(str(value))}")
    click.echo("text:")
    for line in text.split("\n"):
        click.echo(show_invisible(line))
    return True
