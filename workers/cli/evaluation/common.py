"""What the commands of `eval` share: options, an open library, and how a report is given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from config.errors import UsageError
from config.settings import STAGES, Settings
from tasks.services import Services
from workers.backend import stores
from workers.backend.deployment import find_serve, open_channel
from workers.cli.common import ProgressLine, note, open_catalog, print_json

without_option = click.option(
    "--without", multiple=True, type=click.Choice(STAGES), help="Switch a stage off."
)
out_option = click.option(
    "--out", type=click.Path(path_type=Path), help="Write the predictions as JSON."
)
wait_option = click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until all is paged, or say how much is missing and go on.",
)


@contextmanager
def open_services(settings: Settings, wait: bool) -> Iterator[Services]:
    """Stores and models for reading; first waits for paging, or says what is missing."""
    if wait:
        _wait_for_paging(settings)
    with open_catalog(settings) as graph:
        counts = graph.counts()
    missing = counts["published"] - counts["paged"]
    if missing:
        note(f"{missing} of {counts['published']} skills are not paged; words alone page them")
    with ExitStack() as stack:
        yield stores.open_services(settings, stack, _send_nothing, writable=False)


def _send_nothing(name: str, ids: Sequence[object]) -> None:
    raise AssertionError(f"measuring sends no tasks ({name}, {len(ids)} ids)")


def _wait_for_paging(settings: Settings) -> None:
    """Until workers, or a runtime of our own where none runs, have paged all that is published."""
    with open_catalog(settings) as graph:
        counts = graph.counts()
    if counts["paged"] == counts["published"]:
        return
    client = find_serve(settings)
    with ProgressLine() as line, open_catalog(settings) as graph:
        if client is not None:
            client.close()
            _until_paged(graph, line)
        else:
            with open_channel(settings, writable=True):
                _until_paged(graph, line)


def _until_paged(graph: Any, line: ProgressLine) -> None:
    import time

    while True:
        counts = graph.counts()
        line.show(counts)
        if counts["paged"] == counts["published"]:
            return
        time.sleep(0.2)


def finish(report: dict[str, Any], predictions: Any, out: Path | None, as_json: bool) -> None:
    """Write the predictions where asked for and print the report, one figure a line or as JSON."""
    if out is not None:
        write_output(out, json.dumps(predictions, ensure_ascii=False) + "\n")
    if as_json:
        print_json(report)
        return
    for name, value in report.items():
        click.echo(f"{name:<16} {value:.4f}" if isinstance(value, float) else f"{name:<16} {value}")


def write_output(path: Path, text: str) -> None:
    """Write a file that the user named; raises UsageError when that cannot be done."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
