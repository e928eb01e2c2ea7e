"""`outcomes`: exports, counts and forgets stored outcomes."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from config.errors import NotFoundError, UsageError
from config.settings import Settings
from skills.outcomes.codec import outcome_to_dict
from skills.outcomes.model import SECONDS_PER_DAY
from tasks.evaluations.model import EvaluatedPrompt
from tasks.evaluations.protocol import forget_prompts
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.usage.forget import forget_owner, has_owner
from workers.backend.factory import open_backend
from workers.cli.audited import audited
from workers.cli.common import format_count, json_option, print_list, print_result, read_settings
from workers.cli.parameter_types import NumberRange, OutputFile


@click.group()
def outcomes() -> None:
    """Export, count and forget reported outcomes."""


@contextmanager
def _open_store(settings: Settings) -> Iterator[OutcomeStore]:
    from workers.backend.stores import open_library_outcomes  # slow to import

    with ExitStack() as stack:
        yield open_library_outcomes(settings, stack)


@outcomes.command("export")
@click.option("--out", type=OutputFile(), help="Write to this file.")
def export(out: Path | None) -> None:
    """Write all outcomes as JSON lines, in the order of reports."""
    with _open_store(read_settings()) as store:
        rows = map(outcome_to_dict, store.list_outcomes())
        lines = (json.dumps(row, ensure_ascii=False) for row in rows)
        if out is None:
            for line in lines:
                click.echo(line)
            return
        count = 0
        try:
            with out.open("w", encoding="utf-8") as file:
                for count, line in enumerate(lines, 1):  # noqa: B007 - the last count is printed
                    file.write(line + "\n")
        except OSError as error:
            raise UsageError(f"{out}: {error.strerror}") from None
    click.echo(f"{format_count(count, 'outcome')} written to {out}")


@outcomes.command("owners")
@json_option
def owners() -> None:
    """List who reported outcomes, and how many are stored for each."""
    with _open_store(read_settings()) as store:
        counts = store.count_outcomes()
    rows = [{"owner": owner, "outcomes": count} for owner, count in counts.items()]
    print_list(
        rows,
        ("owner", "outcomes"),
        "no outcomes",
        lambda row: (row["owner"] or "(this machine)", row["outcomes"]),
    )


def _forget_evaluated(
    settings: Settings, is_forgotten: Callable[[EvaluatedPrompt], bool], naming: str
) -> None:
    """Delete the library's own prompts from the kept runs of `eval`; naming: see
    `forget_prompts`."""
    from tasks.evaluations.open import open_evaluations

    with ExitStack() as stack:
        forget_prompts(open_evaluations(settings, stack), is_forgotten, naming)


def _link_without(settings: Settings) -> None:
    """Make links without the deleted outcomes now, unless another process writes to the library and
    makes them itself."""
    if settings.distributed:
        return
    with (
        contextlib.suppress(UsageError),
        open_backend(settings, writable=True, embeds="skills") as backend,
    ):
        backend.run_maintenance()
        backend.wait_until_linked()


@outcomes.command("forget")
@click.option("--query", "query_id", metavar="ID", help="Forget the outcomes of this query.")
@click.option(
    "--owner",
    metavar="TOKEN",
    help="Forget outcomes and queries of this token ('' for the user of this machine).",
)
@click.option(
    "--older-than",
    type=NumberRange(min=0),
    metavar="DAYS",
    help="Forget queries that were answered more than DAYS days ago, with their outcomes.",
)
@json_option
@audited("outcomes.forget", "query_id", "owner", "older_than")
def forget(query_id: str | None, owner: str | None, older_than: float | None) -> None:
    """Delete outcomes, with their effect on later answers.

    With --owner and --older-than the answered queries are deleted too, with their sessions and
    their counts in `skillbus usage`.

    \b
    Examples:
      skillbus outcomes forget --query 8d2f6f0d4a4e4c1c9b7a5e1d3c2b1a00
      skillbus outcomes forget --owner ci-bot
      skillbus outcomes forget --older-than 90
    """
    if sum(one is not None for one in (query_id, owner, older_than)) != 1:
        raise UsageError("give one of --query, --owner and --older-than")
    before = time.time() - float(older_than or 0) * SECONDS_PER_DAY
    settings = read_settings()
    is_known = True
    with _open_store(settings) as store:
        if query_id is not None:
            deleted = store.forget_outcomes(query_id)
        elif owner is not None:
            is_known = not owner or has_owner(store, owner)
            deleted = forget_owner(store, owner)
        else:
            deleted = store.forget_before(before)
    _forget_evaluated(
        settings,
        lambda one: (
            one.prompt_id == query_id
            or (owner is not None and one.owner == owner)
            or (older_than is not None and one.asked < before)
        ),
        query_id or owner or "",
    )
    if not is_known:
        raise NotFoundError(
            f"nothing is stored for owner {owner!r}; `skillbus outcomes owners` lists the owners"
        )
    _link_without(settings)
    print_result({"forgotten": deleted}, f"{format_count(deleted, 'outcome')} forgotten")
