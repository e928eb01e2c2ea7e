"""Functions that the commands of `eval` share: options, an open library, and reports."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from config.errors import TransientError, UsageError
from config.settings import OPTIONAL_STAGES, Settings
from skills.events import MAX_BUDGET
from tasks.evaluations.model import EvaluatedPrompt
from tasks.policies import EMBED_SECTIONS
from tasks.services import Services
from workers.backend import stores
from workers.backend.factory import open_backend
from workers.backend.protocol import Backend
from workers.cli.common import SyncProgress, open_catalog, print_result, print_to_stderr
from workers.cli.parameter_types import OutputFile
from workers.cli.waiting import FailedEmbeddings
from workers.library.user_files import write_text

_POLL_SECONDS = 0.2

without_option = click.option(
    "--without",
    multiple=True,
    type=click.Choice(OPTIONAL_STAGES),
    help="Switch a stage off; repeatable.",
)

out_option = click.option("--out", type=OutputFile(), help="Write the predictions as JSON.")
budget_option = click.option(
    "--budget",
    "--tokens",
    "budgets",
    type=click.IntRange(1, MAX_BUDGET),
    multiple=True,
    default=(2_000, 4_000, 8_000),
    show_default=True,
    help="Maximum tokens of the bundle as Markdown; repeatable.",
)
wait_option = click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until all sections are embedded (--no-wait: report what is missing and continue).",
)

keep_option = click.option(
    "--keep/--no-keep",
    default=True,
    help="Keep the run, to compare it with other runs (`skillbus eval list`).",
)


@contextmanager
def open_library(settings: Settings, wait: bool) -> Iterator[Services]:
    """Open stores and models for reading; waits for section vectors, or reports missing ones."""
    counts = _read_counts(settings)
    if wait and counts["embedded"] < counts["published"]:
        print_to_stderr(
            f"{_describe_missing(counts)}: embedding them first; --no-wait evaluates the library "
            "as it is"
        )
        _embed_sections(settings)
        counts = _read_counts(settings)
    if counts["embedded"] < counts["published"]:
        print_to_stderr(f"{_describe_missing(counts)}; their passages are selected by words only")
    with ExitStack() as stack:
        yield stores.open_services(settings, stack, stores.send_nothing, writable=False)


def _read_counts(settings: Settings) -> Mapping[str, int]:
    with open_catalog(settings) as graph:
        return graph.get_counts()


def _describe_missing(counts: Mapping[str, int]) -> str:
    missing = counts["published"] - counts["embedded"]
    return f"{missing} of {counts['published']} skills have no section vectors yet"


def _embed_sections(settings: Settings) -> None:
    """Wait until the sections of all published skills are embedded."""
    with (
        SyncProgress() as progress,
        open_backend(settings, writable=True) as backend,
        ExitStack() as stack,
    ):
        failed = FailedEmbeddings(settings, backend.graph, stack)
        _poll_until_embedded(backend, progress, lambda: failed.count(EMBED_SECTIONS))


def _poll_until_embedded(
    backend: Backend, progress: SyncProgress, count_failed: Callable[[], int]
) -> None:
    """Wait for all skills but those whose embedding failed permanently.

    Raises TransientError if the work does not go on; notes once what it waits for.
    """
    is_noted = False
    while True:
        counts = backend.graph.get_counts()
        progress.show(counts)
        missing = counts["published"] - counts["embedded"]
        if not missing or missing <= count_failed():
            return
        if problem := backend.get_problem():
            raise TransientError(f"{problem}; --no-wait evaluates the library as it is")
        if not is_noted and (reason := backend.get_wait_reason()):
            print_to_stderr(reason)
            is_noted = True
        time.sleep(_POLL_SECONDS)


def find_missing_skills(path: Path, needed: Iterable[str], services: Services) -> list[str]:
    """Return the needed skills that the library does not have, sorted; raises UsageError if it has
    none of them. path: of the labelled tasks, for messages."""
    published = services.library.refresh().pointers
    wanted = set(needed)
    missing = sorted(wanted.difference(published))
    if len(missing) < len(wanted):
        return missing
    example = min(published, default="")
    held = f"has for example {example}" if example else "is empty"
    raise UsageError(
        f"{path}: the library has none of the {len(missing)} skills that the tasks need, such as "
        f"{missing[0]}; it {held}; `skillbus skills list` lists its skills"
    )


def note_missing_skills(path: Path, needed: Iterable[Iterable[str]], services: Services) -> None:
    """Print how many skills that tasks need the library does not have; raises UsageError if it has
    none of them. path: of the tasks. needed: by task."""
    wanted = {name for names in needed for name in names}
    if wanted and (missing := find_missing_skills(path, wanted, services)):
        print_to_stderr(
            f"{len(missing)} of {len(wanted)} needed skills are not in the library, for example "
            f"{missing[0]}; they count as not found"
        )


def print_figures(report: dict[str, Any]) -> None:
    """Print a line for each figure."""
    for name, value in report.items():
        click.echo(f"{name:<16} {value:.4f}" if isinstance(value, float) else f"{name:<16} {value}")


def write_report(
    report: dict[str, Any],
    predictions: Any,
    out: Path | None,
    print_report: Callable[[dict[str, Any]], None] = print_figures,
) -> None:
    """Print the report as text or as JSON, and write the predictions to `out`, if given."""
    print_result(report, print_report)
    if out is not None:
        write_text(out, json.dumps(predictions, ensure_ascii=False) + "\n")


def keep_run(
    settings: Settings,
    kind: str,
    name: str,
    skills: int,
    without: Sequence[str],
    prompts: Sequence[EvaluatedPrompt],
) -> None:
    """Keep a run, and print its id. skills: number of published skills."""
    from tasks.evaluations.open import open_evaluations
    from workers.evaluation.runs.make_run import make_run

    run = make_run(kind, name, settings, skills, without, prompts)
    with ExitStack() as stack:
        open_evaluations(settings, stack).add(run)
    print_to_stderr(
        f"kept as {run.summary.evaluation_id}; `skillbus eval list` lists all kept runs"
    )


def check_line_ranges(owner: str, ranges: Any, lines: int) -> None:
    """Raise UsageError for missing or invalid line ranges, and for ranges outside the file. owner:
    the query or skill that they belong to, for messages."""
    for row in ranges if isinstance(ranges, list) and ranges else [ranges]:
        match row:
            case [int(first), int(last)] if 1 <= first <= last <= lines:
                continue
            case _:
                raise UsageError(
                    f"{owner}: {row!r} is not a line range of the SKILL.md; expected "
                    f"[first, last] within 1 to {lines}"
                )
