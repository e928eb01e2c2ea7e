"""What the commands of `eval` share: options, an open library, and how a report is given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from config.errors import UsageError
from config.settings import OPTIONAL_STAGES, Settings
from tasks.services import Services
from workers.backend import stores
from workers.backend.deployment import connect_to_serve, open_backend
from workers.cli.common import SyncProgress, open_catalog, print_json, print_to_stderr

without_option = click.option(
    "--without", multiple=True, type=click.Choice(OPTIONAL_STAGES), help="Switch a stage off."
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
def open_library(settings: Settings, wait: bool) -> Iterator[Services]:
    """Stores and models for reading; first waits for paging, or says what is missing."""
    if wait:
        _wait_for_section_embeddings(settings)
    with open_catalog(settings) as graph:
        counts = graph.get_counts()
    missing = counts["published"] - counts["paged"]
    if missing:
        print_to_stderr(
            f"{missing} of {counts['published']} skills are not paged; words alone page them"
        )
    with ExitStack() as stack:
        yield stores.open_services(settings, stack, _send_nothing, writable=False)


def _send_nothing(name: str, ids: Sequence[object]) -> None:
    raise AssertionError(f"measuring sends no tasks ({name}, {len(ids)} ids)")


def _wait_for_section_embeddings(settings: Settings) -> None:
    """Until workers, or a runtime of our own where none runs, have paged all that is published."""
    with open_catalog(settings) as graph:
        counts = graph.get_counts()
    if counts["paged"] == counts["published"]:
        return
    client = connect_to_serve(settings)
    with SyncProgress() as line, open_catalog(settings) as graph:
        if client is not None:
            client.close()
            _poll_until_embedded(graph, line)
        else:
            with open_backend(settings, writable=True):
                _poll_until_embedded(graph, line)


def _poll_until_embedded(graph: Any, line: SyncProgress) -> None:
    import time

    while True:
        counts = graph.get_counts()
        line.show(counts)
        if counts["paged"] == counts["published"]:
            return
        time.sleep(0.2)


def write_report(report: dict[str, Any], predictions: Any, out: Path | None, as_json: bool) -> None:
    """Write the predictions where asked for and print the report, one figure a line or as JSON."""
    if out is not None:
        write_text_file(out, json.dumps(predictions, ensure_ascii=False) + "\n")
    if as_json:
        print_json(report)
        return
    for name, value in report.items():
        click.echo(f"{name:<16} {value:.4f}" if isinstance(value, float) else f"{name:<16} {value}")


def write_text_file(path: Path, text: str) -> None:
    """Write a file that the user named; raises UsageError when that cannot be done."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
