"""`dead`: lists, retries and discards dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from config.errors import MisconfiguredError, NotFoundError, TransientError, UsageError
from config.settings import Settings
from skills.bundle.escaping import escape_terminal_line
from tasks.journal.protocol import MAX_DEAD_LETTERS, DeadLetter, Journal
from workers.backend.factory import open_backend
from workers.backend.protocol import Backend
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    format_time,
    json_option,
    note_more,
    print_list,
    print_result,
    print_to_stderr,
    read_settings,
    shorten,
    wants_json,
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
def list_letters(limit: int) -> None:
    """List dead letters, newest first."""
    with _open_journal(read_settings()) as journal:
        letters, total = journal.list_dead_letters(limit), journal.count_dead_letters()
    columns = ("id", "failed at", "task", "ids", "reason")
    print_list([dead_letter_data(one) for one in letters], columns, "no dead letters", _to_cells)
    note_more(total, limit)


def _to_cells(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        row["id"],
        format_time(row["failed_at"]),
        row["task"] or "(unreadable)",
        shorten(", ".join(row["ids"]), 40),
        shorten(row["reason"], 200),
    )


@dead.command("show")
@click.argument("letter_id")
@json_option
def show(letter_id: str) -> None:
    """Show a dead letter: its task or message, and the reason."""
    with _open_journal(read_settings()) as journal:
        letter = journal.get_dead_letter(letter_id)
    print_result(dead_letter_data(letter), lambda _: _print_letter(letter))


def _print_letter(letter: DeadLetter) -> None:
    values = [
        ("id", letter.id),
        ("failed at", format_time(letter.failed_at)),
        ("task", letter.task or "none (unreadable message)"),
        *(("about", one) for one in letter.ids),
        ("attempts", str(letter.attempts)),
        ("trace", letter.trace_id or "unknown"),
        ("reason", letter.reason),
    ]
    for name, value in values:
        click.echo(f"{name:<9} {escape_terminal_line(value)}")
    if letter.body:
        click.echo(f"message   {letter.body!r}")


@dead.command("retry")
@ids_argument
@all_option
@json_option
@audited("dead.retry", "letter_ids", "all_letters")
def retry_letters(letter_ids: tuple[str, ...], all_letters: bool) -> None:
    """Send the tasks of dead letters again and delete the letters.

    An unreadable message names no task and can only be discarded.
    """
    settings = read_settings()
    ids = _select_ids(settings, letter_ids, all_letters)
    with open_backend(settings, writable=True) as backend:
        done = [_retry_letter(backend, one) for one in ids]
        _wait_until_idle(backend)
    if len(ids) == 1 and letter_ids and done[0]["state"] != "sent":
        raise UsageError(done[0]["reason"])
    _report(done, "sent", "retried")


@dead.command("discard")
@ids_argument
@all_option
@json_option
@audited("dead.discard", "letter_ids", "all_letters")
def discard_letters(letter_ids: tuple[str, ...], all_letters: bool) -> None:
    """Delete dead letters."""
    settings = read_settings()
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
    _report(done, "discarded", "discarded")


@contextmanager
def _open_journal(settings: Settings) -> Iterator[Journal]:
    """Open the journal, which other processes may use; raises UsageError without a library."""
    from workers.backend.stores import open_journal, require_library  # slow to import

    require_library(settings)
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


def _report(done: list[dict[str, str]], success_state: str, past_tense: str) -> None:
    count = sum(one["state"] == success_state for one in done)
    print_result(done, f"{format_count(count, 'dead letter')} {past_tense}")
    for one in done:
        if one["state"] != success_state and not wants_json():
            print_to_stderr(one["reason"] or f"dead letter {one['id']!r} no longer exists")
    if any(one["state"] == "refused" for one in done):
        raise click.exceptions.Exit(EXIT_FAILED)
