"""`usage`: shows queries, sent skills and outcomes, and which skills are of no use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import click

from config.errors import UsageError
from config.settings import Settings
from skills.bundle.escaping import escape_terminal_line
from workers.cli.common import (
    format_count,
    json_option,
    note_more,
    print_json,
    print_line,
    print_list,
    print_result,
    print_table,
    print_to_stderr,
    progress_bar,
    read_settings,
    shorten,
    wants_json,
)

if TYPE_CHECKING:
    from tasks.outcomes.protocol import OutcomeStore
    from workers.library.usage.reader import UsageReader
    from workers.library.usage.report import UsageFilter

_MAX_DAYS = 3_650
_OUTCOMES = ("used", "helped", "failed", "rejected", "superseded")
_COUNTERS = ("chosen", "sent", "tokens", *_OUTCOMES)
_LOCAL_USER = "(this machine)"


@click.command()
@click.option(
    "--days",
    type=click.IntRange(1, _MAX_DAYS),
    default=30,
    show_default=True,
    help="The last days, today (UTC) included.",
)
@click.option("--skill", metavar="ID", help="Only this skill.")
@click.option("--source", metavar="ID", help="Only skills of this source.")
@click.option(
    "--owner",
    metavar="TOKEN",
    help="Only queries and outcomes of this token ('' for the user of this machine).",
)
@click.option("--unused", is_flag=True, help="List skills that were never chosen.")
@click.option("--queries", is_flag=True, help="List answered queries, newest first.")
@click.option(
    "--unanswered",
    is_flag=True,
    help="List queries for which no skill was found, or none was useful, in groups.",
)
@click.option(
    "--copies",
    is_flag=True,
    help="List skills that were never chosen because an equivalent skill was preferred.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Maximum number of rows, such as skills or queries.",
)
@json_option
def usage(
    days: int,
    skill: str | None,
    source: str | None,
    owner: str | None,
    unused: bool,
    queries: bool,
    unanswered: bool,
    copies: bool,
    limit: int,
) -> None:
    """Show how often skills were chosen, sent, used, and helped.

    Outcomes count on the day on which their query was answered.

    \b
    Examples:
      skillbus usage --days 7
      skillbus usage --unused --source team
      skillbus usage --queries --days 1
      skillbus usage --unanswered
    """
    if unused + queries + unanswered + copies > 1:
        raise UsageError("give only one of --unused, --queries, --unanswered and --copies")
    if (queries or unanswered) and (skill is not None or source is not None):
        name = "--queries" if queries else "--unanswered"
        raise UsageError(f"{name} covers all skills and sources: leave out --skill and --source")
    settings = read_settings()
    from workers.library.usage.findings import describe_unused  # slow to import
    from workers.library.usage.report import UsageFilter

    selection = UsageFilter(source, skill, owner)
    with ExitStack() as stack:
        reader = _open_reader(settings, stack, days)
        if unused:
            found = reader.select_unused(days, selection, reader.list_published())
            _print_unused([describe_unused(one) for one in found], days, limit)
        elif copies:
            _print_copies(reader.list_copies(days, selection), limit)
        elif queries:
            answered = _list_answered(settings, stack, reader, days, owner, limit)
            print_result(answered, _print_answered)
        elif unanswered:
            _print_unanswered(reader.group_unanswered(days, owner), limit)
        else:
            _print_summary(reader.summarise(days, selection), selection, limit)
        for name in reader.list_unknown(days, selection):
            print_to_stderr(f"no use recorded of {name!r} in the last {format_count(days, 'day')}")


def _open_reader(settings: Settings, stack: ExitStack, days: int) -> UsageReader:
    """Open the stores for reading. Large days of an embedded library are rolled up now, unless a
    `serve` does it."""
    from workers.backend.factory import find_serve, open_skill_reader
    from workers.backend.stores import open_library_outcomes
    from workers.library.usage.reader import UsageReader

    outcomes = open_library_outcomes(settings, stack)
    skills = stack.enter_context(closing(open_skill_reader(settings)))
    reader = UsageReader(settings, outcomes, skills)
    if not settings.distributed and reader.read_window(days).behind:
        serve = find_serve(settings)
        if serve is None:
            _roll_up(outcomes)
            return UsageReader(settings, outcomes, skills)
        serve.close()
    return reader


def _roll_up(outcomes: OutcomeStore) -> None:
    from tasks.outcomes.usage.roll_up import roll_up_days

    with progress_bar("counting usage") as show:
        pages = 0

        def step() -> None:
            nonlocal pages
            pages += 1
            show(pages, pages + 1)

        roll_up_days(outcomes, step)


def _print_summary(data: Mapping[str, Any], selection: UsageFilter, limit: int) -> None:
    if wants_json():
        print_json({**data, "skills": data["skills"][:limit], "skill_count": len(data["skills"])})
        return
    click.echo(f"{data['first']} to {data['last']} (UTC)")
    total = data["total"]
    if not data["days"]:
        click.echo("no queries")
        return
    if not selection.selects_skills:
        click.echo(
            f"queries   {total['queries']}: {format_count(total['hits'], 'hit')}, "
            f"{format_count(total['no_hits'], 'no hit')}, {total['unanswered']} unanswered"
        )
    click.echo(
        f"skills    {total['chosen']} chosen, {total['sent']} sent, {total['tokens']} tokens"
    )
    click.echo("outcomes  " + ", ".join(f"{name} {total[name]}" for name in _OUTCOMES))
    if total["reasons"]:
        reasons = (f"{name} {count}" for name, count in total["reasons"].items())
        click.echo("rejected  " + ", ".join(reasons))
    for day in data["behind"]:
        print_to_stderr(f"{day}: shown as of the last roll-up")
    click.echo()
    _print_counts(data["days"], "day", len(data["days"]), selection.selects_skills)
    if len(data["sources"]) > 1:
        click.echo()
        _print_counts(data["sources"], "source", limit, True)
    if len(data["owners"]) > 1:
        click.echo()
        _print_counts(data["owners"], "owner", limit, selection.selects_skills)
    click.echo()
    _print_counts(data["skills"], "skill_id", limit, True)


def _print_counts(
    rows: Sequence[Mapping[str, Any]], name: str, limit: int, only_skills: bool
) -> None:
    columns = _COUNTERS if only_skills else ("queries", "no_hits", "unanswered", *_COUNTERS)
    print_table(
        [(*(str(row[column]) for column in columns), _label(row, name)) for row in rows[:limit]],
        (*(column.replace("_", " ") for column in columns), name.replace("_", " ")),
    )
    note_more(len(rows), limit, f"{name.removesuffix('_id')}s")


def _label(row: Mapping[str, Any], name: str) -> str:
    label = str(row[name])
    if name == "owner":
        return "(several)" if row["several"] else label or _LOCAL_USER
    return f"{label} to {row['last']}" if "last" in row else label


def _print_unused(rows: list[dict[str, Any]], days: int, limit: int) -> None:
    if rows and not wants_json():
        click.echo(f"skills not chosen in the last {format_count(days, 'day')} (UTC): {len(rows)}")
    _print_skills(rows, limit, ("published", "tokens", "skill_id"), "every skill was chosen")


def _print_copies(rows: list[dict[str, Any]], limit: int) -> None:
    def to_cells(row: dict[str, Any]) -> tuple[object, ...]:
        return row["lost"], row["skill_id"], ", ".join(one["skill_id"] for one in row["to"][:3])

    nothing = "no skill was always left out in favour of an equivalent one"
    _print_skills(rows, limit, ("left out", "skill id", "for"), nothing, to_cells)


def _print_skills(
    rows: list[dict[str, Any]],
    limit: int,
    columns: Sequence[str],
    nothing: str,
    to_cells: Callable[[dict[str, Any]], Sequence[object]] | None = None,
) -> None:
    if wants_json():
        print_json({"skills": rows[:limit], "total": len(rows)})
    else:
        print_list(rows[:limit], columns, nothing, to_cells)
        note_more(len(rows), limit, "skills")


def _list_answered(
    settings: Settings,
    stack: ExitStack,
    reader: UsageReader,
    days: int,
    owner: str | None,
    limit: int,
) -> dict[str, Any]:
    """Return the newest queries, at most `limit`, in the form of `GET /v1/usage/queries`.

    Its field `more` is whether there are further queries.
    """
    from workers.backend.stores import open_journal
    from workers.library.usage.answered import NEWEST, AnsweredPage, describe_answered

    def can_see(asked: str) -> bool:
        return owner is None or asked == owner

    groups, page = reader.list_answered(days, None, can_see, None, NEWEST, limit)
    while page.next is not None and len(page.answers) < limit:  # it has read enough for one page
        rest = limit - len(page.answers)
        others, further = reader.list_answered(days, None, can_see, None, page.next, rest)
        groups += others
        answers, outcomes = page.answers + further.answers, {**page.outcomes, **further.outcomes}
        page = AnsweredPage(answers, outcomes, further.next)
    query_ids = [one.query_id for one in page.answers]
    kept = open_journal(settings, stack, writable=False).get_job_states(query_ids)
    return {"groups": describe_answered(groups, page, kept), "more": page.next is not None}


def _print_answered(data: Mapping[str, Any]) -> None:
    if not data["groups"]:
        click.echo("no queries")
    for group in data["groups"]:
        for number, one in enumerate(group["answers"]):
            times = f"{group['queries']:>5}" if number == 0 else " " * 5
            task = escape_terminal_line(shorten(one["task"], 120))
            click.echo(f"{times}  {one['answered_at']}  {task}")
            chosen = ", ".join(skill["skill_id"] for skill in one["skills"]) or "no skill"
            reported = (f"{given['skill_id']} {given['outcome']}" for given in one["outcomes"])
            print_line("; ".join([chosen, *map(str.strip, reported)]), 29)
    if data["more"]:
        print_to_stderr("there are more queries; --limit shows more of them")


def _print_unanswered(data: Mapping[str, Any], limit: int) -> None:
    groups = data["groups"]
    if wants_json():
        print_json({**data, "groups": groups[:limit], "group_count": len(groups)})
        return
    click.echo(f"unanswered queries: {data['total']}, compared: {data['grouped']}")
    for group in groups[:limit]:
        first, *others = group["examples"]
        days = group["first"]
        if group["last"] != group["first"]:
            days += f" to {group['last']}"
        click.echo(
            f"{group['queries']:>5}  {escape_terminal_line(shorten(first['task'], 160))}"
            f"  ({days}, no hits: {group['no_hits']})"
        )
        for other in others:
            print_line(shorten(other["task"], 120), 9)
    note_more(len(groups), limit, "groups")
