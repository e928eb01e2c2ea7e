"""`sync` and `watch`: a directory of skills in, and kept in step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from config.errors import PermanentError, TransientError, UsageError
from config.settings import Settings
from graph.records import SkillState, Source
from skills.events import Event, SourceChanged, new_event
from tasks.sources.directory import resolve_root
from workers.backend.deployment import connect_to_serve, open_backend
from workers.backend.stores import open_graph
from workers.cli import EXIT_NEWLY_FAILED
from workers.cli.common import SyncProgress, json_option, print_json, print_to_stderr, read_settings

ORIGIN = "skillbus/command-line"
_POLL_SECONDS = 0.2


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--source", "source_id", help="The source's id [default: the folder's name].")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option(
    "--until",
    type=click.Choice(["searchable", "paged"]),
    default="paged",
    show_default=True,
    help="When to end: all skills found by queries, or their sections embedded and linked too.",
)
@json_option
@click.pass_context
def sync(
    ctx: click.Context,
    directory: Path,
    source_id: str | None,
    dry_run: bool,
    until: str,
    as_json: bool,
) -> None:
    """Bring the library in step with DIRECTORY: new, changed, renamed and removed skills.

    Interrupted, the next run goes on where it stopped. A running `skillbus serve` does the work
    when there is one.

    \b
    Examples:
      skillbus sync ./skills
      skillbus sync ~/team/skills --source team --until searchable
    """
    settings = read_settings(ctx)
    content = make_source_event(directory, source_id)
    if dry_run:
        _dry_run(settings, content, as_json)
        return
    sync_source(ctx, settings, content, until, as_json)


def sync_source(
    ctx: click.Context, settings: Settings, content: SourceChanged, until: str, as_json: bool
) -> None:
    """Have a change of a source carried out, wait for it and report it.

    Exits with NEWLY_FAILED where skills failed that had not before; raises what the event failed
    with.
    """
    with ExitStack() as stack:
        event_client = EventClient(settings, stack, embed_sections=until == "paged")
        failed_before = event_client.failed_skills(content.source_id)
        report = _submit_and_wait(event_client, content, until, stack)
        report["newly_failed"] = newly = sorted(
            event_client.failed_skills(content.source_id) - failed_before
        )
    _print_report(report, as_json)
    if newly:
        ctx.exit(EXIT_NEWLY_FAILED)


def make_source_event(directory: Path, source_id: str | None) -> SourceChanged:
    """The event for a directory, checked; raises UsageError."""
    root = resolve_root(directory)
    name = source_id or root.name
    try:
        return SourceChanged(source_id=name, root=str(root))
    except ValueError:
        raise UsageError(
            f"{name!r} cannot be a source id: no spaces, colons, slashes or @; give --source ID"
        ) from None


def check_source_id_free(sources: list[Source], content: SourceChanged) -> None:
    """Raise UsageError when another directory has the source's id."""
    for source in sources:
        if source.source_id == content.source_id and source.root != content.root:
            raise UsageError(
                f"source {source.source_id} is already {source.root}; give --source ID, or "
                f"`skillbus sources remove {source.source_id}` first"
            )


class EventClient:
    """The way to the library: a running `serve`, or a channel of our own."""

    def __init__(self, settings: Settings, stack: ExitStack, embed_sections: bool = True) -> None:
        self.client = connect_to_serve(settings)
        if self.client is not None:
            stack.callback(self.client.close)
            self.graph = open_graph(settings, stack, writable=False)
            return
        self.backend = stack.enter_context(
            open_backend(settings, writable=True, embed_sections=embed_sections)
        )
        self.graph = self.backend.graph

    def submit(self, content: SourceChanged) -> str:
        """Hand the event over; its id once it is accepted."""
        return self.accept(new_event(content, ORIGIN))

    def accept(self, event: Event) -> str:
        """Hand an event over as it is; its id once it is accepted."""
        if self.client is None:
            return self.backend.accept(event)
        accepted: str = self.client.post("/v1/events", event.model_dump(mode="json"))["id"]
        return accepted

    def get_event_state(self, event_id: str) -> tuple[str, str, dict[str, Any]]:
        """State, reason and outcome of an event."""
        if self.client is None:
            job = self.backend.journal.get_job(event_id)
            return job.state, job.reason, job.outcome or {}
        found = self.client.get(f"/v1/events/{event_id}")
        return found["state"], found["reason"], found["outcome"] or {}

    def trouble(self) -> str:
        """Why work does not go on, "" while it does."""
        if self.client is None:
            return self.backend.trouble()
        report: str = self.client.get("/v1/status")["trouble"]
        return report

    def failed_skills(self, source_id: str) -> set[tuple[str, str]]:
        """Skills of a source that failed, each with its reason."""
        return {
            (entry.skill_id, entry.reason)
            for entry in self.graph.get_entries_under(source_id, "")
            if entry.state is SkillState.FAILED
        }

    def run_maintenance(self) -> None:
        """Have the reconciler sweep, where we are the ones who run it."""
        if self.client is None:
            self.backend.run_maintenance()


def _submit_and_wait(
    event_client: EventClient, content: SourceChanged, until: str, stack: ExitStack
) -> dict[str, Any]:
    started = time.monotonic()
    check_source_id_free(event_client.graph.list_sources(), content)
    event_id = event_client.submit(content)
    line = stack.enter_context(SyncProgress())

    def wait(done: Callable[[Mapping[str, int]], bool]) -> float:
        while True:
            state, reason, _ = event_client.get_event_state(event_id)
            if state == "failed":
                raise PermanentError(reason)
            counts = event_client.graph.get_counts()
            line.show(counts)
            if trouble := event_client.trouble():
                raise TransientError(f"{trouble}; nothing is lost, the next sync goes on")
            if state == "done" and done(counts):
                return round(time.monotonic() - started, 2)
            time.sleep(_POLL_SECONDS)

    searchable = wait(lambda counts: counts["waiting"] == 0)
    outcome = event_client.get_event_state(event_id)[2]
    counts = event_client.graph.get_counts()
    if outcome.get("found"):
        print_to_stderr(f"searchable: {counts['published']} skills after {searchable:.1f} s")
    report: dict[str, Any] = {"source": content.source_id, "root": content.root}
    report |= outcome | {"searchable_seconds": searchable}
    if until == "paged":
        report["paged_seconds"] = wait(
            lambda counts: counts["paged"] == counts["published"] and counts["unlinked"] == 0
        )
        event_client.run_maintenance()
    counts = event_client.graph.get_counts()
    report |= {name: counts[name] for name in ("published", "failed", "paged", "links")}
    if not outcome.get("found") and not outcome.get("removed"):
        raise UsageError(f"no SKILL.md at or below {content.root}; give the folder with the skills")
    return report


def _print_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        report["newly_failed"] = [
            {"skill_id": skill_id, "reason": reason} for skill_id, reason in report["newly_failed"]
        ]
        print_json(report)
        return
    click.echo(
        f"{report['source']}: {report['found']} skills found, {report['changed']} new or changed, "
        f"{report['removed']} removed"
    )
    if "paged_seconds" in report:
        click.echo(f"paged and linked after {report['paged_seconds']:.1f} s")
    click.echo(
        f"library: {report['published']} skills ({report['paged']} paged), "
        f"{report['links']} links, {report['failed']} failed"
    )
    for skill_id, reason in report["newly_failed"]:
        click.echo(f"failed: {skill_id}: {reason}", err=True)


def _dry_run(settings: Settings, content: SourceChanged, as_json: bool) -> None:
    from tasks.ingest.diff import preview_sync

    with ExitStack() as stack:
        there = settings.distributed or (settings.home / "graph.db").exists()
        graph = open_graph(settings, stack, writable=False) if there else None
        report = preview_sync(graph, content, settings.limits)
    if as_json:
        print_json(report)
        return
    for kind, ids in report.items():
        click.echo(f"{kind}: {len(ids)}")
        for skill_id in ids:
            click.echo(f"  {skill_id}")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--source", "source_id", help="The source's id [default: the folder's name].")
@click.pass_context
def watch(ctx: click.Context, directory: Path, source_id: str | None) -> None:
    """Sync DIRECTORY, then keep the library in step with it until interrupted.

    With a running `skillbus serve` the folder is handed to it, and the command ends.

    \b
    Example:
      skillbus watch ./skills
    """
    settings = read_settings(ctx)
    content = make_source_event(directory, source_id)
    with ExitStack() as stack:
        event_client = EventClient(settings, stack)
        _print_report(
            _submit_and_wait(event_client, content, "searchable", stack) | {"newly_failed": []},
            False,
        )
        if event_client.client is not None:
            print_to_stderr(f"skillbus serve watches {content.root} from now on")
            return
        from workers.processes.watcher import Watcher

        watcher = stack.enter_context(Watcher(event_client.backend))
        print_to_stderr(f"watching {content.root}; Ctrl-C ends")
        watcher.wait()
