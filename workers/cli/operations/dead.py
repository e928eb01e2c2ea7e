"""`dead`: lists, retries and discards dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from config.errors import MisconfiguredError, NotFoundError, TransientError, UsageError
from config.settings import Settings
from skills.bundle.escaping import escape_terminal_line
from tasks.journal.protocol import MAX_DEAD_LETTERS, Journal
from workers.backend.factory import open_backend
from workers.backend.protocol import Backend
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    format_time,
    json_option,
    print_json,
    print_table,
    print_to_stderr,
    read_settings,
    shorten,
)
from workers.cli.exit_codes import EXIT_FAILED
from workers.library.dead_letters import dead_letter_data

all_option = click.option("--all", "all_letters", is_flag=True, help="Every dead letter.")
ids_argument = click.argument("letter_ids", nargs=-1, metavar="[ID]...")


@click.group()
def dead() -> None:
    """List, retry and discard dead letters.

    These are tasks that failed permanently, and unreadable messages.
    """


@dead.command("list")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_DEAD_LETTERS),
    default=100,
    show_default=True,
    help="Maximum number of dead letters.",
)
@json_option
@click.pass_context
def list_letters(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List dead letters, newest first."""
    with _open_journal(read_settings(ctx)) as journal:
        letters, total = journal.list_dead_letters(limit), journal.count_dead_letters()
    if as_json:
        print_json([dead_letter_data(letter) for letter in letters])
        return
    if not letters:
        click.echo("no dead letters")
        return
    print_table(
        [
            (
                letter.id,
                format_time(letter.failed_at),
                letter.task or "(unreadable)",
                shorten(", ".join(letter.ids), 40),
                shorten(letter.reason, 200),
            )
            for letter in letters
        ],
        ("id", "failed at", "task", "ids", "reason"),
    )
    if total > len(letters):
        print_to_stderr(f"{total - len(letters)} more; --limit shows more of them")


@dead.command("show")
@click.argument("letter_id")
@json_option
@click.pass_context
def show(ctx: click.Context, letter_id: str, as_json: bool) -> None:
    """Show a dead letter: its task or message, and the reason."""
    with _open_journal(read_settings(ctx)) as journal:
        letter = journal.get_dead_letter(letter_id)
    if as_json:
        print_json(dead_letter_data(letter))
        return
    click.echo(f"id        {letter.id}")
    click.echo(f"failed at {format_time(letter.failed_at)}")
    task = escape_terminal_line(letter.task) or "none (unreadable message)"
    click.echo(f"task      {task}")
    for one in letter.ids:
        click.echo(f"about     {escape_terminal_line(one)}")
    click.echo(f"attempts  {letter.attempts}")
    click.echo(f"trace     {escape_terminal_line(letter.trace_id) or 'unknown'}")
    click.echo(f"reason    {escape_terminal_line(letter.reason)}")
    if letter.body:
        click.echo(f"message   {letter.body!r}")


@dead.command("retry")
@ids_argument
@all_option
@json_option
@click.pass_context
@audited("dead.retry", "letter_ids", "all_letters")
def retry_letters(
    ctx: click.Context, letter_ids: tuple[str, ...], all_letters: bool, as_json: bool
) -> None:
    """Send the tasks of dead letters again and delete the letters.

    An unreadable message names no task and can only be discarded.
    """
    settings = read_settings(ctx)
    ids = _select_ids(settings, letter_ids, all_letters)
    with open_backend(settings, writable=True) as backend:
        done = [_retry_letter(backend, one) for one in ids]
        _wait_until_idle(backend)
    if len(ids) == 1 and letter_ids and done[0]["state"] != "sent":
        raise UsageError(done[0]["reason"])
    _report(ctx, done, "sent", "retried", as_json)


@dead.command("discard")
@ids_argument
@all_option
@json_option
@click.pass_context
@audited("dead.discard", "letter_ids", "all_letters")
def discard_letters(
    ctx: click.Context, letter_ids: tuple[str, ...], all_letters: bool, as_json: bool
) -> None:
    """Delete dead letters."""
    settings = read_settings(ctx)
    ids = _select_ids(settings, letter_ids, all_letters)
    with _open_journal(settings) as journal:
        done = [
            {
                "id": one,
                "state": "discarded" if journal.delete_dead_letter(one) else "gone",
                "reason": "",
            }
            for one in ids
        ]
    _report(ctx, done, "discarded", "discarded", as_json)


@contextmanager
def _open_journal(settings: Settings) -> Iterator[Journal]:
    """Open the journal, which other processes may use; raises UsageError without a library."""
    from workers.backend.stores import open_journal, require_library  # slow to import

    if not settings.distributed:
        require_library(settings.home)
    with ExitStack() as stack:
        yield open_journal(settings, stack, writable=True)


def _select_ids(settings: Settings, ids: tuple[str, ...], all_letters: bool) -> list[str]:
    """Return the given ids without repeats, or those of all dead letters, oldest first.

    Raises NotFoundError for an unknown id.
    """
    if all_letters == bool(ids):
        raise UsageError("give dead letter ids, or --all")
    with _open_journal(settings) as journal:
        if ids:
            return [journal.get_dead_letter(one).id for one in dict.fromkeys(ids)]
        return [letter.id for letter in reversed(journal.list_dead_letters(MAX_DEAD_LETTERS))]


def _retry_letter(backend: Backend, letter_id: str) -> dict[str, str]:
    try:
        backend.retry_dead_letter(letter_id)
    except (UsageError, MisconfiguredError) as error:
        state = "gone" if isinstance(error, NotFoundError) else "refused"
        return {"id": letter_id, "state": state, "reason": str(error)}
    return {"id": letter_id, "state": "sent", "reason": ""}


def _wait_until_idle(backend: Backend) -> None:
    """Run the retried tasks in this process, if no other runs them; errors
    do not undo the retry."""
    try:
        backend.wait_until_idle()
    except TransientError as error:
        print_to_stderr(str(error))


def _report(
    ctx: click.Context,
    done: list[dict[str, str]],
    success_state: str,
    past_tense: str,
    as_json: bool,
) -> None:
    if as_json:
        print_json(done)
    else:
        count = sum(one["state"] == success_state for one in done)
        click.echo(f"{format_count(count, 'dead letter')} {past_tense}")
        for one in done:
            if one["state"] != success_state:
                print_to_stderr(
                    escape_terminal_line(one["reason"])
                    or f"dead letter {one['id']!r} no longer exists"
                )
    if any(one["state"] == "refused" for one in done):
        ctx.exit(EXIT_FAILED)
