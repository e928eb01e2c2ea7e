"""`dead`: tasks that failed for good, and messages that nobody could read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from config.errors import MisconfiguredError, UsageError
from config.settings import Settings
from tasks.journal.protocol import DeadLetter, Journal
from workers.backend.base import Backend
from workers.backend.deployment import connect_to_serve, open_backend
from workers.cli import EXIT_FAILED
from workers.cli.common import json_option, print_json, print_table, print_to_stderr, read_settings
from workers.library.dead_letters import (
    dead_letter_data,
    retry_dead_letter,
    retry_failure,
    select_dead_letters,
)

_MAX_LETTERS = 10_000
_POLL_SECONDS = 0.05

all_option = click.option("--all", "all_letters", is_flag=True, help="Every dead letter.")
ids_argument = click.argument("letter_ids", nargs=-1, metavar="[ID]...")


@click.group()
def dead() -> None:
    """List, retry and discard dead letters: what failed for good, and what nobody could read."""


@dead.command("list")
@click.option("--limit", type=click.IntRange(1, _MAX_LETTERS), default=100, show_default=True)
@json_option
@click.pass_context
def list_letters(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List dead letters, newest first."""
    with _journal(read_settings(ctx)) as journal:
        letters, total = journal.list_dead_letters(limit), journal.count_dead_letters()
    if as_json:
        print_json([dead_letter_data(letter) for letter in letters])
        return
    if not letters:
        click.echo("no dead letters")
        return
    rows = [
        (
            letter.id,
            _format_time(letter),
            letter.task or "(no task)",
            ", ".join(letter.ids),
            letter.reason,
        )
        for letter in letters
    ]
    print_table(
        [(*row[:-2], _shorten(row[-2], 40), _shorten(row[-1], 200)) for row in rows],
        ("letter", "buried", "task", "ids", "reason"),
    )
    if total > len(letters):
        print_to_stderr(f"{total - len(letters)} more; --limit shows more of them")


@dead.command("show")
@click.argument("letter_id")
@json_option
@click.pass_context
def show(ctx: click.Context, letter_id: str, as_json: bool) -> None:
    """Show one dead letter whole: task and ids, or the message, and why it is here."""
    with _journal(read_settings(ctx)) as journal:
        letter = journal.get_dead_letter(letter_id)
    if as_json:
        print_json(dead_letter_data(letter))
        return
    click.echo(f"letter    {letter.id}")
    click.echo(f"buried    {_format_time(letter)}")
    click.echo(f"task      {letter.task or 'none: the message could not be read'}")
    for one in letter.ids:
        click.echo(f"id        {one}")
    click.echo(f"begun     {letter.attempts} times")
    click.echo(f"trace     {letter.trace_id or 'unknown'}")
    click.echo(f"reason    {letter.reason}")
    if letter.body:
        click.echo(f"message   {letter.body!r}")


@dead.command("retry")
@ids_argument
@all_option
@json_option
@click.pass_context
def retry_letters(
    ctx: click.Context, letter_ids: tuple[str, ...], all_letters: bool, as_json: bool
) -> None:
    """Send the tasks of dead letters again; a letter goes away once its task was sent.

    A message that could not be read names no task and can only be discarded.
    """
    settings = read_settings(ctx)
    ids = _selected_ids(settings, letter_ids, all_letters)
    with ExitStack() as stack:
        retry_one = _open_retry(settings, stack)
        done = [_retry_result(one, retry_one) for one in ids]
    if len(ids) == 1 and letter_ids and done[0]["state"] != "sent":
        raise UsageError(done[0]["reason"])
    _report(ctx, done, "sent", "sent again", as_json)


@dead.command("discard")
@ids_argument
@all_option
@json_option
@click.pass_context
def discard_letters(
    ctx: click.Context, letter_ids: tuple[str, ...], all_letters: bool, as_json: bool
) -> None:
    """Drop dead letters for good."""
    settings = read_settings(ctx)
    ids = _selected_ids(settings, letter_ids, all_letters)
    with _journal(settings) as journal:
        if len(ids) == 1 and letter_ids:
            journal.get_dead_letter(ids[0])  # says so when there is none
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
def _journal(settings: Settings) -> Iterator[Journal]:
    """The journal, beside whoever writes it; raises UsageError where nothing was synced yet."""
    from workers.backend.stores import open_journal, require_library

    if not settings.distributed:
        require_library(settings.home)
    with ExitStack() as stack:
        yield open_journal(settings, stack, writable=True)


def _selected_ids(settings: Settings, ids: tuple[str, ...], all_letters: bool) -> list[str]:
    if all_letters == bool(ids):
        raise UsageError("name dead letters by their ids, or all of them with --all")
    if ids:
        return select_dead_letters((), ids)
    with _journal(settings) as journal:
        return select_dead_letters(journal.list_dead_letters(_MAX_LETTERS), ())


def _open_retry(settings: Settings, stack: ExitStack) -> Callable[[str], dict[str, Any]]:
    """Retries one letter: through `serve`, or a channel of our own that ends when all is done."""
    client = connect_to_serve(settings)
    if client is not None:
        stack.callback(client.close)
        return lambda letter_id: dict(client.post(f"/v1/letters/{letter_id}/retry", {}))
    backend = stack.enter_context(open_backend(settings, writable=True))
    if not settings.distributed:
        stack.callback(_wait_until_idle, backend)
    return lambda letter_id: retry_dead_letter(backend, letter_id)


def _wait_until_idle(backend: Backend) -> None:
    """Wait until this process, the only one that works, has done what was sent."""
    while not backend.coordinator.task_error:
        progress = backend.get_progress()
        busy = backend.coordinator.pending_ingest_tasks or backend.coordinator.pending_embed_tasks
        if not (progress["events"] or progress["waiting"] or progress["unlinked"] or busy):
            return
        time.sleep(_POLL_SECONDS)
    print_to_stderr(f"{backend.coordinator.task_error}; nothing is lost, the next run goes on")


def _retry_result(letter_id: str, retry_one: Callable[[str], dict[str, Any]]) -> dict[str, str]:
    try:
        retry_one(letter_id)
    except (UsageError, MisconfiguredError) as error:
        return dict(retry_failure(letter_id, error))
    return {"id": letter_id, "state": "sent", "reason": ""}


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
        click.echo(f"{count} dead {'letter' if count == 1 else 'letters'} {past_tense}")
        for one in done:
            if one["state"] != success_state:
                print_to_stderr(one["reason"] or f"no dead letter {one['id']!r} any more")
    if any(one["state"] == "refused" for one in done):
        ctx.exit(EXIT_FAILED)


def _format_time(letter: DeadLetter) -> str:
    return datetime.fromtimestamp(letter.buried, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _shorten(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
