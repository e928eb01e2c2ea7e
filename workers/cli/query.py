"""`query`: a task in words, a bundle out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from config.errors import UsageError
from config.settings import STAGES
from skills.bundle.framing import terminal_line as shown
from skills.bundle.model import Bundle, line_range, render, withheld_summary
from skills.events import QueryAsked, QueryFilters
from workers.backend.deployment import find_serve, open_channel
from workers.cli import NO_SKILL_HIT
from workers.cli.common import print_json, read_settings, read_stdin
from workers.library.files import read_text

ORIGIN = "skillbus/command-line"
FILTERS = tuple(QueryFilters.model_fields)


@click.command()
@click.argument("text", required=False)
@click.option("--file", "file", type=click.Path(path_type=Path), help="Read the task from a file.")
@click.option(
    "--budget", type=click.IntRange(0, 10_000_000), help="Tokens that the bundle may hold."
)
@click.option(
    "--top",
    type=click.IntRange(1, 100),
    help="Matches that the bundle may hold; what they need comes on top.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="A summary, the whole bundle as JSON, or as Markdown for a prompt.",
)
@click.option("--explain", is_flag=True, help="Show what each stage gave each candidate.")
@click.option("--without", multiple=True, type=click.Choice(STAGES), help="Switch a stage off.")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Only skills with this value; NAME is one of {', '.join(FILTERS)}.",
)
@click.pass_context
def query(
    ctx: click.Context,
    text: str | None,
    file: Path | None,
    budget: int | None,
    top: int | None,
    form: str,
    explain: bool,
    without: tuple[str, ...],
    filters: tuple[str, ...],
) -> None:
    """Answer a task with the skills, and the passages of each, that it needs.

    TEXT is the task in words; `-` reads it from standard input.

    \b
    Examples:
      skillbus query "merge the monthly spreadsheets and chart the totals"
      skillbus query --file task.md --format markdown --budget 4000
      git log -1 --format=%B | skillbus query - --filter licence=MIT
    """
    settings = read_settings(ctx)
    if budget == 0:
        raise UsageError("a budget of 0 tokens leaves no room for any passage; try --budget 2000")
    asked = QueryAsked(
        task=_task(text, file),
        budget=budget,
        top=top,
        filters=_filters(filters),
        without=without,
        explain=explain,
    )
    client = find_serve(settings)
    if client is not None:
        data = client.post("/v1/answers", asked.model_dump(mode="json"))
        client.close()
    else:
        with open_channel(settings, writable=False) as channel:
            data = channel.answer(asked, ORIGIN)
    _print(data, form)
    if data["status"] == "NO_SKILL_HIT":
        ctx.exit(NO_SKILL_HIT)


def _task(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise UsageError("give the task as TEXT, as `-` for standard input, or with --file")
    if file is not None:
        return read_text(file)
    return read_stdin() if text == "-" else str(text)


def _filters(pairs: tuple[str, ...]) -> QueryFilters:
    values: dict[str, list[str]] = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or name not in FILTERS or not value:
            raise UsageError(f"--filter {pair}: write NAME=VALUE, NAME one of {', '.join(FILTERS)}")
        values.setdefault(name, []).append(value)
    return QueryFilters(**{name: tuple(found) for name, found in values.items()})


def _print(data: dict[str, Any], form: str) -> None:
    if form == "json":
        print_json(data)
        return
    bundle = Bundle.model_validate(data)
    if form == "markdown":
        click.echo(render(bundle))
    else:
        _print_summary(bundle)
    if bundle.explain is not None:
        _print_explanation(bundle.explain)


def _print_summary(bundle: Bundle) -> None:
    if bundle.status == "NO_SKILL_HIT":
        click.echo(f"NO_SKILL_HIT: {shown(bundle.reason)}")
        _print_withheld(bundle)
        return
    click.echo(f"{len(bundle.skills)} skills, {bundle.tokens} of {bundle.budget} tokens")
    for place, skill in enumerate(bundle.skills, 1):
        click.echo("")
        click.echo(
            click.style(f"{place}. {shown(skill.name)}", bold=True) + f"  ({shown(skill.skill_id)})"
        )
        click.echo(f"   {shown(skill.path)}")
        click.echo(f"   why: {shown('; '.join(skill.why))}")
        lines = ", ".join(line_range(p.first_line, p.last_line) for p in skill.passages)
        click.echo(
            f"   lines {lines or 'none'}; {skill.tokens} tokens, {skill.left_out.tokens} left out"
        )
        if skill.safety.level:
            reason = next(iter(skill.safety.reasons), "no reason kept")
            click.echo(f"   caution, level {skill.safety.level}: {shown(reason)}")
    if bundle.links or bundle.left_out or bundle.withheld.count or bundle.degraded:
        click.echo("")
    for link in bundle.links:
        told = f"{link.source} -> {link.target}: {link.type} ({link.evidence})"
        click.echo(shown(told))
    for skill_left in bundle.left_out:
        click.echo(shown(f"not included: {skill_left.skill_id}: {skill_left.reason}"))
    _print_withheld(bundle)
    for reason in bundle.degraded:
        click.echo(f"degraded: {shown(reason)}")


def _print_withheld(bundle: Bundle) -> None:
    if bundle.withheld.count:
        click.echo(f"withheld: {withheld_summary(bundle.withheld)}")
    for one in bundle.withheld.skills:
        click.echo(f"withheld: {shown(one.skill_id)}: {shown(one.reason)}")


def _print_explanation(explain: dict[str, Any]) -> None:
    click.echo("\nstages (ms): " + ", ".join(f"{k} {v:.1f}" for k, v in explain["stages"].items()))
    click.echo(f"evidence: strength {explain['strength']:.2f}, floor {explain['floor']:.2f}\n")
    for place, row in enumerate(explain["candidates"], 1):
        parts = dict(row["scores"])
        total = parts.pop("score")
        click.echo(f"{place:>3}. {shown(row['skill_id'])}: {shown(row['verdict'])}")
        told = [
            f"{'-' if value < 0 else '+'} {name} {abs(value):.2f}"
            for name, value in parts.items()
            if round(value, 2)
        ]
        click.echo(f"     {total:.2f} = {' '.join(told).removeprefix('+ ')}")
