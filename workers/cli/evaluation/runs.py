"""`eval list`, `eval compare` and `eval remove`: kept runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from config.errors import NotFoundError, UsageError
from skills.bundle.escaping import escape_terminal_line as safe_line
from tasks.evaluations.model import EvaluationSummary, Measure
from tasks.evaluations.protocol import EvaluationStore
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    json_option,
    print_json,
    print_table,
    read_settings,
    shorten,
)

if TYPE_CHECKING:
    from workers.evaluation.runs.compare_runs import RunComparison

_SHOWN_PROMPTS = 20


@contextmanager
def _open_store(ctx: click.Context) -> Iterator[EvaluationStore]:
    from tasks.evaluations.open import open_evaluations
    from workers.backend.stores import require_library  # slow to import

    settings = read_settings(ctx)
    if not settings.distributed:
        require_library(settings.home)
    with ExitStack() as stack:
        yield open_evaluations(settings, stack)


@click.command("list")
@json_option
@click.pass_context
def list_runs(ctx: click.Context, as_json: bool) -> None:
    """List kept runs, the newest first."""
    with _open_store(ctx) as store:
        found = store.list_summaries()
    if as_json:
        print_json([describe_summary(one) for one in found])
    elif found:
        rows = [
            (
                one.evaluation_id,
                datetime.fromtimestamp(one.made, UTC).strftime("%Y-%m-%d %H:%M"),
                one.kind,
                one.name,
                f"{one.tasks}",
                _first_measure(one),
            )
            for one in found
        ]
        print_table(rows, ("run", "made (UTC)", "kind", "tasks of", "tasks", "first measure"))
    else:
        click.echo("no runs are kept; `skillbus eval routing TASKS` makes one")


@click.command("compare")
@click.argument("before")
@click.argument("after")
@json_option
@click.pass_context
def compare(ctx: click.Context, before: str, after: str, as_json: bool) -> None:
    """Compare two kept runs: measures, and prompts that changed.

    BEFORE and AFTER are ids of `skillbus eval list`, or the beginnings of ids. Differences are of
    the prompts that both runs have, with 95% bootstrap intervals.
    """
    from workers.evaluation.runs.compare_runs import compare_runs

    with _open_store(ctx) as store:
        runs = [store.get(_find_id(store, one)) for one in (before, after)]
    found = compare_runs(*runs)
    if as_json:
        print_json(_describe_comparison(found))
        return
    click.echo(f"{format_count(found.paired, 'prompt')} in both runs, {found.unpaired} in one only")
    for name, old, new in found.settings:
        click.echo(safe_line(f"{name}: {_format_value(old)} before, {_format_value(new)} after"))
    rows = [
        (one.name, f"{one.before:.3f}", f"{one.after:.3f}", _format_change(one.change))
        for one in found.measures
    ]
    print_table(rows, ("measure", "before", "after", "difference [95% interval]"))
    for title, changes in (("better", found.better), ("worse", found.worse)):
        click.echo(f"{title}: {len(changes)}")
        for one in changes[:_SHOWN_PROMPTS]:
            places = f"{_format_ranks(one.before)} -> {_format_ranks(one.after)}"
            click.echo(f"  {places}  {safe_line(shorten(one.task, 100))}")
        if len(changes) > _SHOWN_PROMPTS:
            click.echo(f"  {len(changes) - _SHOWN_PROMPTS} more; --json lists them all")


@click.command("remove")
@click.argument("run")
@click.pass_context
@audited("evaluations.remove", "run")
def remove(ctx: click.Context, run: str) -> None:
    """Delete a kept run. RUN is an id of `skillbus eval list`, or the beginning of one."""
    with _open_store(ctx) as store:
        evaluation_id = _find_id(store, run)
        store.remove(evaluation_id)
    click.echo(f"removed: {evaluation_id}")


def describe_summary(summary: EvaluationSummary) -> dict[str, object]:
    """Return a summary as JSON data."""
    measures = {name: one._asdict() for name, one in summary.measures.items()}
    return {**asdict(summary), "measures": measures}


def _describe_comparison(found: RunComparison) -> dict[str, Any]:
    """Return a comparison as JSON data, in the form of the HTTP API."""
    measures = [
        {**asdict(one), "change": one.change._asdict(), "is_significant": one.is_significant}
        for one in found.measures
    ]
    settings = [
        {"name": name, "before": before, "after": after} for name, before, after in found.settings
    ]
    return {**asdict(found), "measures": measures, "settings": settings}


def _find_id(store: EvaluationStore, beginning: str) -> str:
    """Return the one id with this beginning; raises UsageError if there is none or several."""
    found = [
        one.evaluation_id
        for one in store.list_summaries()
        if beginning and one.evaluation_id.startswith(beginning)
    ]
    if len(found) > 1:
        raise UsageError(f"{len(found)} runs begin with {beginning}; give more of the id")
    if not found:
        raise NotFoundError(f"no run begins with {beginning!r}; `skillbus eval list` lists them")
    return found[0]


def _first_measure(summary: EvaluationSummary) -> str:
    for name, one in summary.measures.items():
        return f"{name} {one.mean:.3f} [{one.low:.2f}, {one.high:.2f}]"
    return ""


def _format_value(value: object) -> str:
    """Return the value of a setting; None stands for the default, a text may be empty."""
    return "default" if value is None else str(value) or "none"


def _format_change(change: Measure) -> str:
    if change.low == change.high == 0:
        return "="
    return f"{change.mean:+.3f} [{change.low:+.2f}, {change.high:+.2f}]"


def _format_ranks(ranks: tuple[int, ...]) -> str:
    return ", ".join(str(rank) if rank else "–" for rank in ranks)
