"""`eval list`, `eval compare` and `eval remove`: kept runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from config.errors import NotFoundError, UsageError
from tasks.evaluations.model import EvaluationSummary, Measure
from tasks.evaluations.protocol import EvaluationStore
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    json_option,
    print_line,
    print_list,
    print_result,
    print_table,
    read_settings,
    shorten,
)

if TYPE_CHECKING:
    from workers.evaluation.runs.compare_runs import RunComparison

_SHOWN_PROMPTS = 20


@contextmanager
def _open_store() -> Iterator[EvaluationStore]:
    from tasks.evaluations.open import open_evaluations
    from workers.backend.stores import require_library  # slow to import

    settings = read_settings()
    require_library(settings)
    with ExitStack() as stack:
        yield open_evaluations(settings, stack)


@click.command("list")
@json_option
def list_runs() -> None:
    """List kept runs, newest first."""
    with _open_store() as store:
        found = store.list_summaries()
    print_list(
        [describe_summary(one) for one in found],
        ("run", "made (UTC)", "kind", "tasks of", "tasks", "first measure"),
        "no runs are kept; `skillbus eval routing TASKS` makes one",
        _to_cells,
    )


def _to_cells(row: dict[str, Any]) -> tuple[object, ...]:
    made = datetime.fromtimestamp(row["made"], UTC).strftime("%Y-%m-%d %H:%M")
    name, one = next(iter(row["measures"].items()), ("", None))
    first = f"{name} {one['mean']:.3f} [{one['low']:.2f}, {one['high']:.2f}]" if one else ""
    return row["evaluation_id"], made, row["kind"], row["name"], row["tasks"], first


@click.command("compare")
@click.argument("before")
@click.argument("after")
@json_option
def compare(before: str, after: str) -> None:
    """Compare two kept runs: measures, and prompts that changed.

    BEFORE and AFTER are ids of `skillbus eval list`, or the beginnings of ids. Differences are
    means over the prompts that both runs have, with 95% bootstrap intervals.
    """
    from workers.evaluation.runs.compare_runs import compare_runs

    with _open_store() as store:
        runs = [store.get(_find_id(store, one)) for one in (before, after)]
    found = compare_runs(*runs)
    print_result(_describe_comparison(found), lambda _: _print_comparison(found))


def _print_comparison(found: RunComparison) -> None:
    click.echo(f"{format_count(found.paired, 'prompt')} in both runs, {found.unpaired} in one only")
    for name, old, new in found.settings:
        print_line(f"{name}: {_format_value(old)} before, {_format_value(new)} after")
    rows = [
        (one.name, f"{one.before:.3f}", f"{one.after:.3f}", _format_change(one.change))
        for one in found.measures
    ]
    print_table(rows, ("measure", "before", "after", "difference [95% interval]"))
    for title, changes in (("better", found.better), ("worse", found.worse)):
        click.echo(f"{title}: {len(changes)}")
        for one in changes[:_SHOWN_PROMPTS]:
            places = f"{_format_ranks(one.before)} -> {_format_ranks(one.after)}"
            print_line(f"{places}  {shorten(one.task, 100)}", 2)
        if len(changes) > _SHOWN_PROMPTS:
            click.echo(f"  {len(changes) - _SHOWN_PROMPTS} more; --json lists them all")


@click.command("remove")
@click.argument("run")
@audited("evaluations.remove", "run")
def remove(run: str) -> None:
    """Delete a kept run. RUN is an id of `skillbus eval list`, or the beginning of one."""
    with _open_store() as store:
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


def _format_value(value: object) -> str:
    """Return the value of a setting; None stands for the default, a text may be empty."""
    return "default" if value is None else str(value) or "none"


def _format_change(change: Measure) -> str:
    if change.low == change.high == 0:
        return "="
    return f"{change.mean:+.3f} [{change.low:+.2f}, {change.high:+.2f}]"


def _format_ranks(ranks: tuple[int, ...]) -> str:
    return ", ".join(str(rank) if rank else "–" for rank in ranks)
