"""`dead`: tasks that failed for good, and messages that nobody could read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from config.errors import UsageError
from config.settings import Settings
from tasks.journal.protocol import DeadLetter, Journal
from workers.backend.channel import Channel
from workers.backend.deployment import find_serve, open_channel
from workers.cli import FAILED
from workers.cli.common import json_option, note, print_json, print_table, read_settings
from workers.library.dead_letters import chosen_letters, letter_data, refusal, retry

_MOST = 10_000
_POLL_SECONDS = 0.05

all_option = click.option("--all", "everything", is_flag=True, help="Every dead letter.")
ids_argument = click.argument("letter_ids", nargs=-1, metavar="[ID]...")


@click.group()
def dead() -> None:
    """List, retry and discard dead letters: what failed for good, and what nobody could read."""


@dead.command("list")
@click.option("--limit", type=click.IntRange(1, _MOST), default=100, show_default=True)
@json_option
@click.pass_context
def list_letters(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List dead letters, newest first."""
    with _journal(read_settings(ctx)) as journal:
        letters, total = journal.letters(limit), journal.count_letters()
    if as_json:
        print_json([letter_data(letter) for letter in letters])
        return
    if not letters:
        click.echo("no dead letters")
        return
    rows = [
        (letter.id, _when(letter), letter.task or "(no task)", ", ".join(letter.ids), letter.reason)
        for letter in letters
    ]
    print_table(
        [(*row[:-2], _short(row[-2], 40), _short(row[-1], 200)) for row in rows],
        ("letter", "buried", "task", "ids", "reason"),
    )
    if total > len(letters):
        note(f"{total - len(letters)} more; --limit shows more of them")


@dead.command("show")
@click.argument("letter_id")
@json_option
@click.pass_context
def show(ctx: click.Context, letter_id: str, as_json: bool) -> None:
    """Show one dead letter whole: task and ids, or the message, and why it is here."""
    with _journal(read_settings(ctx)) as journal:
        letter = journal.letter(letter_id)
    if as_json:
        print_json(letter_data(letter))
        return
    click.echo(f"letter    {letter.id}")
    click.echo(f"buried    {_when(letter)}")
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
    ctx: click.Context, letter_ids: tuple[str, ...], everything: bool, as_json: bool
) -> None:
    """Send the tasks of dead letters again; a letter goes away once its task was sent.

    A message that could not be read names no task and can only be discarded.
    """
    settings = read_settings(ctx)
    ids = _meant(settings, letter_ids, everything)
    with ExitStack() as stack:
        retry_one = _retrier(settings, stack)
        done = [_tried(one, retry_one) for one in ids]
    if len(ids) == 1 and letter_ids and done[0]["state"] != "sent":
        raise UsageError(done[0]["reason"])
    _report(ctx, done, "sent", "sent again", as_json)


@dead.command("discard")
@ids_argument
@all_option
@json_option
@click.pass_context
def discard_letters(
    ctx: click.Context, letter_ids: tuple[str, ...], everything: bool, as_json: bool
) -> None:
    """Drop dead letters for good."""
    settings = read_settings(ctx)
    ids = _meant(settings, letter_ids, everything)
    with _journal(settings) as journal:
        if len(ids) == 1 and letter_ids:
            journal.letter(ids[0])  # says so when there is none
        done = [
            {"id": one, "state": "discarded" if journal.discard(one) else "gone", "reason": ""}
            for one in ids
        ]
    _report(ctx, done, "discarded", "discarded", as_json)


@contextmanager
def _journal(settings: Settings) -> Iterator[Journal]:
    """The journal, beside whoever writes it; raises UsageError where nothing was synced yet."""
    from workers.backend.stores import check_library, open_journal

    if not settings.distributed:
        check_library(settings.home)
    with ExitStack() as stack:
        yield open_journal(settings, stack, writable=True)


def _meant(settings: Settings, ids: tuple[str, ...], everything: bool) -> list[str]:
    if everything == bool(ids):
        raise UsageError("name dead letters by their ids, or all of them with --all")
    if ids:
        return chosen_letters((), ids)
    with _journal(settings) as journal:
        return chosen_letters(journal.letters(_MOST), ())


def _retrier(settings: Settings, stack: ExitStack) -> Callable[[str], dict[str, Any]]:
    """Retries one letter: through `serve`, or a channel of our own that ends when all is done."""
    client = find_serve(settings)
    if client is not None:
        stack.callback(client.close)
        return lambda letter_id: dict(client.post(f"/v1/letters/{letter_id}/retry", {}))
    channel = stack.enter_context(open_channel(settings, writable=True))
    if not settings.distributed:
        stack.callback(_settle, channel)
    return lambda letter_id: retry(channel, letter_id)


def _settle(channel: Channel) -> None:
    """Wait until this process, the only one that works, has done what was sent."""
    while not channel.activity.trouble:
        progress = channel.progress()
        busy = channel.activity.ingesting or channel.activity.paging
        if not (progress["events"] or progress["waiting"] or progress["unlinked"] or busy):
            return
        time.sleep(_POLL_SECONDS)
    note(f"{channel.activity.trouble}; nothing is lost, the next run goes on")


def _tried(letter_id: str, retry_one: Callable[[str], dict[str, Any]]) -> dict[str, str]:
    try:
        retry_one(letter_id)
    except UsageError as error:
        return dict(refusal(letter_id, error))
    return {"id": letter_id, "state": "sent", "reason": ""}


def _report(
    ctx: click.Context, done: list[dict[str, str]], good: str, said: str, as_json: bool
) -> None:
    if as_json:
        print_json(done)
    else:
        count = sum(one["state"] == good for one in done)
        click.echo(f"{count} dead {'letter' if count == 1 else 'letters'} {said}")
        for one in done:
            if one["state"] != good:
                note(one["reason"] or f"no dead letter {one['id']!r} any more")
    if any(one["state"] == "refused" for one in done):
        ctx.exit(FAILED)


def _when(letter: DeadLetter) -> str:
    return datetime.fromtimestamp(letter.buried, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _short(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
