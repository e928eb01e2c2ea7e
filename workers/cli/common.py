"""Functions that commands share: settings, catalog, output, progress, groups of sources."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from config.errors import UsageError
from config.load_settings import load_settings
from config.logging import configure_logging
from config.settings import Settings
from config.tracing import parse_context, trace
from skills.access import parse_groups
from skills.bundle.escaping import dump_terminal_json, escape_terminal_line
from workers.cli.audited import prepare_record
from workers.quantities import format_count as format_count  # for the commands

if TYPE_CHECKING:
    from rich.progress import Progress

    from graph.protocol import SkillGraph
    from graph.records import Source

DataT = TypeVar("DataT")
RowT = TypeVar("RowT", bound=Mapping[str, Any])

_MAX_PADDING = 60
"""Longest cell, in characters, to which the other cells of its column are padded."""


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
    help="A group that sees the skills of the source; repeatable [default: unchanged; for a new "
    "source access.default_groups].",
)


def _keep_wants_json(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    del option
    ctx.meta[_WANTS_JSON] = value


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_keep_wants_json, help="Print JSON."
)
"""The option of a command that prints its result with `print_result` or `print_list`."""

_WANTS_JSON = "skillbus.json"
"""Key of the option's value in the context."""

ORIGIN = "skillbus/command-line"
"""The `source` of the events that commands submit."""


def format_time(seconds: float) -> str:
    """Return seconds since the epoch as date and time, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def read_settings(long_running: bool = False, *, is_server: bool = False) -> Settings:
    """Read the settings of this command and set up logging; a command is one span of a trace.

    Only errors are logged unless `log_level` is set: commands print their own messages.
    long_running: whether the command runs until interrupted; it then starts tracing itself.
    is_server: whether requests to the command are traced, and not the command.
    """
    ctx = click.get_current_context()
    if long_running:
        from search.process_memory import limit_malloc  # imports ctypes

        limit_malloc()
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


def wants_json() -> bool:
    """Return whether this command was called with `--json`."""
    return bool(click.get_current_context().meta.get(_WANTS_JSON))


def print_result(data: DataT, text: str | Callable[[DataT], object]) -> None:
    """Print the result of a command: as JSON if that was asked for, else as text.

    text: one line, or a function that prints the data. The line may hold untrusted text.
    """
    if wants_json():
        print_json(data)
    elif isinstance(text, str):
        print_line(text)
    else:
        text(data)


def print_json(value: Any) -> None:
    """Print indented JSON; letters of other scripts are not escaped."""
    click.echo(dump_terminal_json(value))


def print_line(text: str, indent: int = 0) -> None:
    """Print one line, which may hold untrusted text. indent: number of spaces before it."""
    click.echo(" " * indent + escape_terminal_line(text))


def print_to_stderr(text: str) -> None:
    """Print a note for the user, one line, to standard error. It may hold untrusted text."""
    click.echo(escape_terminal_line(text), err=True)


def ask(question: str) -> bool:
    """Ask a question; return False for no, and if standard input has no answer.

    It may hold untrusted text.
    """
    try:
        return click.confirm(escape_terminal_line(question), err=True)
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
    """Print columns under a header; the last is not padded. Cells may hold untrusted text.

    A cell longer than `_MAX_PADDING` moves the rest of its line to the right, so that one long id
    does not move every line.
    """
    table = [header, *([escape_terminal_line(cell) for cell in row] for row in rows)]
    widths = [min(max(map(len, column)), _MAX_PADDING) for column in zip(*table, strict=True)]
    widths[-1] = 0
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    click.secho(lines[0], bold=True)
    for line in lines[1:]:
        click.echo(line)


def print_list(
    rows: Sequence[RowT],
    columns: Sequence[str],
    nothing: str = "",
    to_cells: Callable[[RowT], Sequence[object]] | None = None,
) -> None:
    """Print rows as JSON if that was asked for, else as a table; `nothing` if there are none.

    columns: names of the fields that the table shows, or of the cells that `to_cells` makes.
    """
    if wants_json():
        print_json(rows)
    elif not rows and nothing:
        click.echo(nothing)
    else:
        make = to_cells or (lambda row: [row[name] for name in columns])
        cells = [["" if cell is None else str(cell) for cell in make(row)] for row in rows]
        header = ["revision" if name == "seq" else name.replace("_", " ") for name in columns]
        print_table(cells, header)


def note_more(count: int, limit: int, what: str = "") -> None:
    """Print to standard error how many of `count` rows a list of at most `limit` leaves out."""
    if count > limit:
        print_to_stderr(f"{count - limit} more{what and f' {what}'}; --limit shows more of them")


def shorten(text: str, limit: int) -> str:
    """Return a text as one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class SyncProgress:
    """Progress bars of a sync, shown on a terminal only."""

    def __init__(self) -> None:
        self._progress = _make_progress("{task.description:<11}")
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
    with _make_progress("{task.description}") as progress:
        task = progress.add_task(text, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _make_progress(description: str) -> Progress:
    """Return bars for standard error. description: format of the text before each."""
    from rich.console import Console  # slow to import
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn(description),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def read_stdin() -> str:
    """Return standard input as UTF-8 text; raises UsageError if it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("standard input is not UTF-8 text; convert it to UTF-8") from None
