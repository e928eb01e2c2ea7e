"""Functions that commands share: settings, catalog, output, progress, groups of sources."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from config.errors import UsageError
from config.load_settings import load_settings
from config.logging import configure_logging
from config.settings import Settings
from config.tracing import parse_context, trace
from graph.protocol import SkillGraph
from graph.records import Source
from skills.access import parse_groups
from skills.bundle.escaping import dump_terminal_json, escape_terminal_line
from workers.cli.audited import prepare_record


def _parse_groups(
    ctx: click.Context, option: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    del ctx, option
    return parse_groups(names)


group_option = click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    callback=_parse_groups,
    help="A group that sees the skills of the source; repeatable [default: as before, or as "
    "access.default_groups says].",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

ORIGIN = "skillbus/command-line"
"""The `source` of the events that commands submit."""


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun: "1 skill", "2 skills"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_time(seconds: float) -> str:
    """Return seconds since the epoch as date and time, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def read_settings(
    ctx: click.Context, long_running: bool = False, *, is_server: bool = False
) -> Settings:
    """Read the settings of this call and set up logging; a command is one span of a trace.

    Only errors are logged unless `log_level` is set: commands print their own messages.
    long_running: whether the command runs until interrupted; it then starts tracing itself.
    is_server: whether requests to the command are traced, and not the command.
    """
    settings = load_settings(ctx.find_root().obj)
    asked_for = long_running or "log_level" in settings.model_fields_set
    configure_logging(settings.log_level if asked_for else "error")
    prepare_record(ctx, settings)
    if settings.tracing.endpoint and not long_running:
        from workers.tracing.start import tracing  # slow to import

        ctx.find_root().with_resource(tracing(settings.tracing))
        if not is_server:
            ctx.find_root().with_resource(_command_span(ctx))
    return settings


@contextmanager
def _command_span(ctx: click.Context) -> Iterator[None]:
    """Open the span of a command; it continues the trace of the variable `TRACEPARENT`."""
    parent = parse_context(os.environ.get("TRACEPARENT"), os.environ.get("TRACESTATE"))
    result: click.exceptions.Exit | None = None
    with trace(ctx.command_path, "internal", [parent], {"process.pid": os.getpid()}) as span:
        try:
            yield
        except click.exceptions.Exit as exit_code:  # not an error: click ends commands with it
            span.set_attributes({"process.exit.code": exit_code.exit_code})
            result = exit_code
    if result is not None:
        raise result


def print_json(value: Any) -> None:
    """Print indented JSON; letters of other scripts are not escaped."""
    click.echo(dump_terminal_json(value))


def print_to_stderr(text: str) -> None:
    """Print a note for the user to standard error."""
    click.echo(text, err=True)


def ask(question: str) -> bool:
    """Ask a question; return False for no, and if standard input has no answer."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        print_to_stderr("")  # ends the line of the question
        return False


@contextmanager
def open_catalog(settings: Settings) -> Iterator[SkillGraph]:
    """Open the catalog for reading; raises UsageError if there is no library."""
    from workers.backend.stores import open_graph  # slow to import

    with ExitStack() as stack:
        yield open_graph(settings, stack, writable=False)


def require_source(sources: Iterable[Source], source_id: str | None) -> None:
    """Raise UsageError if no source has this id; None stands for all sources."""
    if source_id not in (None, *(one.source_id for one in sources)):
        raise UsageError(f"no source {source_id!r}; `skillbus sources list` lists them")


def print_table(rows: Iterable[Sequence[str]], header: Sequence[str]) -> None:
    """Print columns under a header; the last is not padded. Cells may hold untrusted text."""
    table = [header, *([escape_terminal_line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    widths[-1] = 0
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    click.secho(lines[0], bold=True)
    for line in lines[1:]:
        click.echo(line)


def print_list(
    rows: Sequence[Mapping[str, Any]], as_json: bool, columns: Sequence[str], nothing: str = ""
) -> None:
    """Print rows as JSON, or as a table of some of their fields; `nothing` if there are none."""
    if as_json:
        print_json(rows)
    elif not rows and nothing:
        click.echo(nothing)
    else:
        cells = [["" if row[name] is None else str(row[name]) for name in columns] for row in rows]
        header = ["revision" if name == "seq" else name.replace("_", " ") for name in columns]
        print_table(cells, header)


def shorten(text: str, limit: int) -> str:
    """Return a text as one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class SyncProgress:
    """Progress bars of a sync, shown on a terminal only."""

    def __init__(self) -> None:
        from rich.console import Console  # slow to import
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description:<11}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._words = self._progress.add_task("words", total=None)
        self._searchable = self._progress.add_task("searchable", total=None)
        self._embedded = self._progress.add_task("embedded", total=None)

    def __enter__(self) -> SyncProgress:
        """Show the bars."""
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Remove the bars."""
        self._progress.stop()

    def show(self, counts: Mapping[str, int]) -> None:
        """Update the bars with counts of the catalog."""
        published = counts.get("published", 0)
        waiting = counts.get("waiting", 0)
        total = max(published, 1) if not waiting else published + waiting
        self._progress.update(self._words, completed=total - waiting, total=total)
        for bar, count in ((self._searchable, "with_vectors"), (self._embedded, "embedded")):
            self._progress.update(bar, completed=counts.get(count, 0), total=max(published, 1))


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar, on a terminal only; yields a function of (done, total)."""
    from rich.console import Console  # slow to import
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task(text, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def read_stdin() -> str:
    """Return standard input as UTF-8 text; raises UsageError if it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("standard input is not UTF-8 text; convert it to UTF-8") from None
