"""`sync`: reads a directory of skills into the library."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from config.errors import UsageError
from config.settings import Settings
from graph.protocol import Catalog
from graph.records import SkillState, Source
from skills.events import SourceChanged, describe_validation_error
from tasks.policies import EMBED_SECTIONS, EMBED_SKILLS, TaskPolicy
from tasks.sources.directory import resolve_root
from tasks.sources.folder_rules import no_skill_found
from workers.backend.factory import open_backend
from workers.backend.protocol import Backend, EmbedMode
from workers.backend.stores import open_graph
from workers.cli.audited import audited
from workers.cli.common import (
    ORIGIN,
    SyncProgress,
    format_count,
    group_option,
    json_option,
    print_line,
    print_result,
    print_to_stderr,
    read_settings,
)
from workers.cli.exit_codes import EXIT_NEWLY_FAILED
from workers.cli.parameter_types import FolderPath
from workers.cli.waiting import FailedEmbeddings, OtherRoots, wait_for_event

WORDS, SEARCHABLE, EMBEDDED = "words", "searchable", "embedded"
_EMBEDS: dict[str, EmbedMode] = {WORDS: "nothing", SEARCHABLE: "skills", EMBEDDED: "sections"}
_STAGES = list(_EMBEDS)
_PROGRESS_NOTES = {WORDS: "found by words", SEARCHABLE: "searchable"}


DIRECTORY = FolderPath(path_type=Path)


def _read_until(ctx: click.Context, option: click.Parameter, value: str) -> str:
    del ctx, option
    if value == "paged":
        print_to_stderr("warning: `--until paged` is deprecated; use `--until embedded`")
        return EMBEDDED
    return value


@click.command()
@click.argument("directory", type=DIRECTORY)
@click.option("--source", "source_id", help="The source's id [default: the folder's name].")
@click.option("--dry-run", is_flag=True, help="Report what would change, and change nothing.")
@click.option(
    "--until",
    type=click.Choice([WORDS, SEARCHABLE, EMBEDDED, "paged"]),
    metavar=f"[{WORDS}|{SEARCHABLE}|{EMBEDDED}]",
    default=EMBEDDED,
    show_default=True,
    callback=_read_until,
    help="Return when skills are found by their words; by words and meaning; or when their "
    "sections are embedded and links made as well.",
)
@group_option
@json_option
@audited("sources.sync", "source_id", "directory", "groups")
def sync(
    directory: Path, source_id: str | None, dry_run: bool, until: str, groups: tuple[str, ...]
) -> None:
    """Sync the library with a directory of skills.

    Reads new and changed skills, and removes skills that the directory no longer has. An
    interrupted run is resumed by the next one. If `skillbus serve` is running, it does the work.

    \b
    Examples:
      skillbus sync ./skills
      skillbus sync ~/team/skills --source team --until searchable
    """
    settings = read_settings()
    content = make_source_event(directory, source_id)
    if dry_run:
        _dry_run(settings, content)
        return
    sync_source(settings, content, until, groups)


def sync_source(
    settings: Settings, content: SourceChanged, until: str, groups: Sequence[str] = ()
) -> None:
    """Submit a change of a source, wait for it and print a report.

    groups: groups that see its skills; none: unchanged.
    Exits with EXIT_NEWLY_FAILED if skills failed that had not failed before. Raises
    PermanentError if the event failed.
    """
    with open_backend(settings, writable=True, embeds=_EMBEDS[until]) as backend:
        failed_before = _failed_skills(backend.graph, content.source_id)
        report = run_sync(backend, content, until, groups)
        failed = _failed_skills(backend.graph, content.source_id)
    report["newly_failed"] = [
        {"skill_id": skill_id, "reason": reason}
        for skill_id, reason in sorted(failed - failed_before)
    ]
    print_report(report)
    if still := len(failed & failed_before):
        print_to_stderr(
            f"{still} of its skills still {'fails' if still == 1 else 'fail'}: `skillbus skills "
            f"list --source {content.source_id} --state failed`"
        )
    if report["newly_failed"]:
        raise click.exceptions.Exit(EXIT_NEWLY_FAILED)


def make_source_event(directory: Path, source_id: str | None) -> SourceChanged:
    """Return the event for a directory; raises UsageError for an invalid directory or id."""
    root = resolve_root(directory)
    name = root.name if source_id is None else source_id
    try:
        return SourceChanged(source_id=name, root=str(root))
    except ValidationError as error:
        raise UsageError(f"{describe_validation_error(error)}; give --source ID") from None


def _check_source_id_free(sources: list[Source], content: SourceChanged) -> None:
    """Raise UsageError if another directory has the source's id."""
    for source in sources:
        if source.source_id == content.source_id and source.root != content.root:
            raise UsageError(
                f"source {source.source_id} already exists with root {source.root}; choose "
                f"another --source ID, or `skillbus sources remove {source.source_id}` first"
            )


def _failed_skills(graph: Catalog, source_id: str) -> set[tuple[str, str]]:
    """Return id and reason of the failed skills of a source."""
    return {
        (entry.skill_id, entry.reason)
        for entry in graph.get_entries_under(source_id, "")
        if entry.state is SkillState.FAILED
    }


def run_sync(
    backend: Backend, content: SourceChanged, until: str, groups: Sequence[str] = ()
) -> dict[str, Any]:
    """Submit a change of a source, wait for it, and return counts and times.

    until: WORDS, SEARCHABLE or EMBEDDED. groups: as for `sync_source`. Raises UsageError if the
    source holds no skills or its id belongs to another directory.
    """
    started = time.monotonic()
    _check_source_id_free(backend.graph.list_sources(), content)
    if groups:
        # Set before the sync, so that readers outside these groups never see the source's skills.
        backend.set_source_groups(content.source_id, groups)
    event_id = backend.submit(content, ORIGIN)
    counts: dict[str, int] = {}
    others = OtherRoots(backend, content.source_id)

    def look() -> None:
        nonlocal counts
        counts = backend.graph.get_counts()
        counts["waiting"] = others.count_waiting(counts["waiting"])
        progress.show(counts)

    def wait(stage: str) -> dict[str, Any]:
        return wait_for_event(
            backend,
            event_id,
            on_poll=look,
            find_problem=others.find_problem,
            is_complete=lambda: _is_complete(counts, stage, failed.count),
            stalled_hint="accepted changes are kept and the next sync resumes",
        )

    with SyncProgress() as progress, ExitStack() as stack:
        failed = FailedEmbeddings(backend.settings, backend.graph, stack)
        report: dict[str, Any] = {"source": content.source_id, "root": content.root}
        for stage in _STAGES[: _STAGES.index(until) + 1]:
            report |= wait(stage)
            report[f"{stage}_seconds"] = seconds = round(time.monotonic() - started, 2)
            if report.get("found") and stage in _PROGRESS_NOTES:
                count = format_count(counts["published"], "skill")
                note = f"{_PROGRESS_NOTES[stage]}: {count}"
                print_to_stderr(f"{note} after {seconds:.1f} s")
        if until == EMBEDDED:
            backend.run_maintenance()
    report |= _count_library(backend.graph)
    if not report.get("found") and not report.get("removed"):
        raise no_skill_found(content.root)
    return report


def _count_library(graph: Catalog) -> dict[str, int]:
    counts = graph.get_counts()
    kept = ("published", "failed", "held", "links", "with_vectors", "embedded")
    return {name: counts[name] for name in kept}


def _is_complete(
    counts: Mapping[str, int], stage: str, count_failed: Callable[[TaskPolicy], int]
) -> bool:
    """Return whether a stage is done. count_failed: counts the skills whose embedding by a task
    failed permanently, which nothing waits for."""
    if stage == WORDS:
        return counts["waiting"] == 0
    embedded, others, task = (
        ("with_vectors", "waiting", EMBED_SKILLS)
        if stage == SEARCHABLE
        else ("embedded", "unlinked", EMBED_SECTIONS)
    )
    missing = counts["published"] - counts[embedded]
    return counts[others] == 0 and (not missing or missing <= count_failed(task))


def print_report(report: dict[str, Any]) -> None:
    """Print the report of `run_sync`."""
    # The names before 0.2; remove them after that version.
    report["paged"] = report["embedded"]
    if "embedded_seconds" in report:
        report["paged_seconds"] = report["embedded_seconds"]
    print_result(report, _print_report)


def _print_report(report: dict[str, Any]) -> None:
    found = format_count(report["found"], "skill")
    changes = f"{report['changed']} new or changed, {report['removed']} removed"
    click.echo(f"{report['source']}: {found} found, {changes}")
    if "embedded_seconds" in report:
        click.echo(f"embedded and linked after {report['embedded_seconds']:.1f} s")
    click.echo(
        f"library: {format_count(report['published'], 'skill')} ({report['embedded']} embedded), "
        f"{format_count(report['links'], 'link')}, {report['failed']} failed"
        + (f", {report['held']} held for review" if report["held"] else "")
    )
    for one in report.get("newly_failed", ()):
        print_to_stderr(f"failed: {one['skill_id']}: {one['reason']}")


def _dry_run(settings: Settings, content: SourceChanged) -> None:
    from tasks.ingest.diff import preview_sync  # slow to import

    with ExitStack() as stack:
        exists = settings.distributed or (settings.home / "graph.db").exists()
        graph = open_graph(settings, stack, writable=False) if exists else None
        if graph is not None:
            _check_source_id_free(graph.list_sources(), content)
        report = preview_sync(graph, content, settings.limits)
    print_result(report, _print_preview)


def _print_preview(report: Mapping[str, Sequence[str]]) -> None:
    for kind, ids in report.items():
        click.echo(f"{kind}: {len(ids)}")
        for skill_id in ids:
            print_line(skill_id, 2)
