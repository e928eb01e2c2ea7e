"""`query`: requests the bundle for a task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from config.errors import UsageError
from config.settings import OPTIONAL_STAGES
from skills.bundle.escaping import escape_terminal_line as safe_line
from skills.bundle.markdown import (
    format_line_ranges,
    format_probability,
    render_answer,
    render_candidate,
    summarise_unfit,
    summarise_withheld,
)
from skills.bundle.model import Bundle
from skills.events import (
    MAX_BUDGET,
    SESSION_ID,
    QueryAsked,
    QueryFilters,
    describe_validation_error,
)
from workers.backend.factory import open_backend
from workers.cli.common import (
    ORIGIN,
    format_count,
    print_json,
    print_line,
    read_settings,
    read_stdin,
)
from workers.cli.exit_codes import EXIT_NO_SKILL_HIT
from workers.library.user_files import read_text

FILTERS = tuple(QueryFilters.model_fields)
_EXPLAINED_SKILLS = re.compile(r"\bexplain_skills(?:\.\d+)?: ")
_PIN = re.compile(r"(?P<skill_id>[^:]+:.+)@(?P<seq>[0-9]{1,19})", re.DOTALL)


@click.command()
@click.argument("text", required=False)
@click.option("--file", "file", type=click.Path(path_type=Path), help="Read the task from a file.")
@click.option(
    "--budget",
    type=click.IntRange(1, MAX_BUDGET),
    help="Maximum tokens of the bundle as Markdown. [default: choice.budget]",
)
@click.option(
    "--top",
    type=click.IntRange(1, 100),
    help="Maximum number of matches; their dependencies are added. [default: choice.top]",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="A summary, the whole bundle as JSON, or as Markdown for a prompt.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Show the parts of the score of each candidate, and why it was chosen or left out.",
)
@click.option(
    "--why",
    "explain_skills",
    multiple=True,
    metavar="SKILL_ID",
    help="Explain why this skill was chosen, or which stage left it out and why; repeatable.",
)
@click.option(
    "--without",
    multiple=True,
    type=click.Choice(OPTIONAL_STAGES),
    help="Switch a stage off; repeatable.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Only skills with this value; NAME is one of {', '.join(FILTERS)}; repeatable.",
)
@click.option(
    "--session",
    metavar="ID",
    help="Id of your choice: text that was sent in this session is not sent again.",
)
@click.option(
    "--resend",
    is_flag=True,
    help="Send the session's text again, since it was lost; without TEXT, for its last task.",
)
@click.option(
    "--obstacle",
    default="",
    metavar="TEXT",
    help="What went wrong with the session's last task; TEXT may then be left out.",
)
@click.option(
    "--brief",
    is_flag=True,
    help="Introduce skills in a few lines; later queries of the session send more if needed.",
)
@click.option(
    "--pin",
    "pins",
    multiple=True,
    metavar="SKILL_ID@SEQ",
    help="Send this revision of the skill if it is chosen; repeatable (`skillbus skills history`).",
)
@click.option(
    "--no-record-use",
    "record_use",
    flag_value=False,
    default=True,
    help="Do not count the answer as usage, or as sent in the session.",
)
def query(
    text: str | None,
    file: Path | None,
    budget: int | None,
    top: int | None,
    output_format: str,
    explain: bool,
    explain_skills: tuple[str, ...],
    without: tuple[str, ...],
    filters: tuple[str, ...],
    session: str | None,
    resend: bool,
    obstacle: str,
    brief: bool,
    pins: tuple[str, ...],
    record_use: bool,
) -> None:
    """Find the skills for a task, and the passages that it needs.

    TEXT is the task in words; `-` reads it from standard input.

    \b
    Examples:
      skillbus query "merge the monthly spreadsheets and chart the totals"
      skillbus query --file task.md --format markdown --budget 4000
      git log -1 --format=%B | skillbus query - --filter licence=MIT
      skillbus query "chart the totals" --why team:trip-cleaning
      skillbus query --session job-7 --obstacle "ModuleNotFoundError: No module named 'openpyxl'"
    """
    settings = read_settings()
    _check_session(session, {"resend": resend, "obstacle": bool(obstacle), "brief": brief})
    try:
        request = QueryAsked(
            task=_task(text, file, optional=resend or bool(obstacle.strip())),
            budget=budget,
            top=top,
            filters=_filters(filters),
            without=without,
            explain=explain,
            explain_skills=explain_skills,
            session=session or "",
            resend=resend,
            obstacle=obstacle,
            brief=brief,
            pins=_pins(pins),
            record_use=record_use,
        )
    except ValidationError as error:
        problem = describe_validation_error(error)
        raise UsageError(_EXPLAINED_SKILLS.sub("--why: ", problem)) from None
    with open_backend(settings, writable=False) as backend:
        data = backend.answer_query(request, ORIGIN)
    _print(data, output_format)
    if data["status"] == "NO_SKILL_HIT":
        raise click.exceptions.Exit(EXIT_NO_SKILL_HIT)


def _check_session(session: str | None, options: Mapping[str, bool]) -> None:
    """Raise UsageError for an invalid id, or for an option that needs a session but has none."""
    if session == "":
        raise UsageError("--session is empty; name a session, or leave the option out")
    for name, is_set in options.items():
        if is_set and session is None:
            raise UsageError(f"--{name} refers to a session; name it with --session ID")
    if session is not None and not SESSION_ID.fullmatch(session):
        raise UsageError(
            "--session: an id is at most 200 printable ASCII characters, no space at its ends"
        )


def _task(text: str | None, file: Path | None, *, optional: bool) -> str:
    if optional and text is None and file is None:
        return ""
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


def _pins(names: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        pin = _PIN.fullmatch(name)
        if pin is None or not int(pin["seq"]):
            raise UsageError(
                f"--pin {name}: write SKILL_ID@SEQ; `skillbus skills history` lists revisions"
            )
        skill_id, seq = pin["skill_id"], int(pin["seq"])
        if found.setdefault(skill_id, seq) != seq:
            raise UsageError(f"--pin {name}: {skill_id} is pinned to two revisions; give one")
    return found


def _print(data: dict[str, Any], output_format: str) -> None:
    if output_format == "json":
        print_json(data)
        return
    bundle = Bundle.model_validate(data)
    if output_format == "markdown":
        click.echo(render_answer(bundle), nl=False)
    else:
        _print_summary(bundle)
    if bundle.explain is not None:
        _print_explanation(bundle.explain)


def _print_summary(bundle: Bundle) -> None:
    if bundle.warning:
        print_line(f"warning: {bundle.warning}")
    if bundle.status == "NO_SKILL_HIT":
        for line in (
            f"NO_SKILL_HIT: {bundle.reason}",
            *_list_notes(bundle),
            f"query {bundle.query_id}",
        ):
            print_line(line)
        return
    count = format_count(len(bundle.skills), "skill")
    probability = _format_probability("; probability that one is right:", bundle.probability)
    click.echo(f"{count}, {bundle.tokens} of {bundle.budget} tokens{probability}")
    if not bundle.skills:
        print_line(bundle.reason)
    for sent in bundle.already_sent:
        lines = format_line_ranges(sent.lines)
        print_line(f"sent earlier: {sent.skill_id}, revision {sent.seq}: lines {lines}")
    for place, skill in enumerate(bundle.skills, 1):
        click.echo("")
        click.echo(
            click.style(f"{place}. {safe_line(skill.name)}", bold=True)
            + f"  ({safe_line(skill.skill_id)})"
        )
        print_line(skill.path, 3)
        probability = _format_probability("; probability", skill.probability)
        print_line(f"why: {'; '.join(skill.why)}{probability}", 3)
        lines = format_line_ranges([(one.first_line, one.last_line) for one in skill.passages])
        rest = skill.left_out.tokens
        extent = f"{rest} tokens of the skill left out" if rest else "nothing left out"
        print_line(f"lines {lines or 'none'}; {skill.tokens} tokens ({extent})", 3)
        if skill.safety.level:
            reason = next(iter(skill.safety.reasons), "no reason recorded")
            print_line(f"safety level {skill.safety.level}: {reason}", 3)
    if notes := _list_notes(bundle):
        click.echo()
    for note in notes:
        print_line(note)
    click.echo(f"\nquery {bundle.query_id}; `skillbus outcome` reports what helped")


def _format_probability(name: str, probability: float | None) -> str:
    """Return "name 0.83", "" without a probability."""
    return "" if probability is None else f"{name} {format_probability(probability)}"


def _list_notes(bundle: Bundle) -> list[str]:
    """Return the lines below the skills: links, skills that were left out or are withheld, and
    stages that were limited."""
    notes = [f"{one.source} -> {one.target}: {one.type} ({one.evidence})" for one in bundle.links]
    for left in bundle.left_out:
        if left.description:
            notes.append(f"other candidate: {render_candidate(left)}")
            continue
        tokens = f" ({left.tokens} tokens)" if left.tokens else ""
        notes.append(f"left out: {left.skill_id}: {left.reason}{tokens}")
    if bundle.did_not_fit is not None:
        notes.append(summarise_unfit(bundle.did_not_fit))
    if bundle.withheld.count:
        notes.append(f"withheld: {summarise_withheld(bundle.withheld)}")
    notes += [f"withheld: {one.skill_id}: {one.reason}" for one in bundle.withheld.skills]
    return notes + [f"degraded: {reason}" for reason in bundle.degraded]


def _describe_model_call(report: dict[str, Any]) -> str:
    """Return a line with the result of a stage's call to the language model, and its cost."""
    parts = [report["outcome"]]
    if report.get("calls"):
        tokens = f"{report['prompt_tokens']} + {report['completion_tokens']} tokens"
        parts.append(f"{format_count(report['calls'], 'call')}, {tokens}")
    parts += [
        f"{name} {', '.join(report[name])}"
        for name in ("queries", "needed", "useful", "order")
        if report.get(name)
    ]
    if report.get("conflicts"):
        parts.append("conflicts " + ", ".join(map(" / ".join, report["conflicts"])))
    return "; ".join(parts)


def _print_explanation(explain: dict[str, Any]) -> None:
    click.echo("\nstages (ms): " + ", ".join(f"{k} {v:.1f}" for k, v in explain["stages"].items()))
    if explain["probability"] is not None:
        click.echo(
            f"probability that the library has a skill for the task: {explain['probability']:.2f}, "
            f"threshold {explain['least_probability']:.2f}"
        )
    for stage, report in explain.get("language_model", {}).items():
        print_line(f"{stage}: {_describe_model_call(report)}")
    click.echo()
    for row in explain.get("skills", []):
        found = "in" if row["stage"] == "bundle" else f"out at the stage {row['stage']}"
        print_line(f"{row['skill_id']}: {found}: {row['reason']}")
    for place, row in enumerate(explain["candidates"], 1):
        parts = dict(row["scores"])
        total = parts.pop("score")
        click.echo(f"{place:>3}. {safe_line(row['skill_id'])}: {safe_line(row['verdict'])}")
        terms = [
            f"{'-' if value < 0 else '+'} {name} {abs(value):.2f}"
            for name, value in parts.items()
            if round(value, 2)
        ]
        click.echo(f"     {total:.2f} = {' '.join(terms).removeprefix('+ ')}")
        if row["probability"] is not None:
            click.echo(f"     probability {row['probability']:.2f}")
