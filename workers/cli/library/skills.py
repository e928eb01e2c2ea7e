"""`skills` and `failures`: what the library holds, and what it could not take in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import click

from config.errors import PermanentError
from config.settings import Settings
from graph.protocol import Catalog
from graph.records import CatalogEntry, EntryFilter, SkillState
from skills.bundle.escaping import escape_terminal_line
from skills.events import SkillRemoved, SourceRemoved, new_event
from skills.skill_policy import SkillPolicy
from tasks.query.policy_filter import make_policy
from workers.backend.deployment import connect_to_serve, open_backend
from workers.backend.stores import open_index
from workers.cli.common import json_option, open_catalog, print_json, print_table, read_settings
from workers.library.skill_data import entry_data, require_entry, skill_data, withheld_reason

ORIGIN = "skillbus/command-line"
_BATCH_SIZE = 2_000


@click.group()
def skills() -> None:
    """List, show and remove skills."""


@skills.command("list")
@click.option("--source", "source_id", help="Only this source.")
@click.option(
    "--state", type=click.Choice([state.value for state in SkillState]), help="Only these."
)
@click.option("--name", help="Only published ones of this name.")
@json_option
@click.pass_context
def list_skills(
    ctx: click.Context, source_id: str | None, state: str | None, name: str | None, as_json: bool
) -> None:
    """List every skill of the catalog with its state, revision and reason.

    \b
    Example:
      skillbus skills list --state failed
    """
    settings = read_settings(ctx)
    selection = EntryFilter(source_id, None if state is None else SkillState(state), name)
    with open_catalog(settings) as graph:
        entries = list(_iterate_entries(graph, selection))
        policy = make_policy(settings.policy, graph.list_sources())
    if as_json:
        print_json([entry_data(entry, policy) for entry in entries])
        return
    print_table(
        [
            (
                entry.skill_id,
                entry.state.value,
                str(entry.seq or "-"),
                entry.name,
                _withheld_text(policy, entry) or entry.reason,
            )
            for entry in entries
        ],
        ("skill", "state", "revision", "name", "reason"),
    )


def _iterate_entries(graph: Catalog, selection: EntryFilter) -> Iterator[CatalogEntry]:
    """All entries of a selection, read in pages."""
    after = ""
    while page := graph.list_entries(selection, after, _BATCH_SIZE):
        yield from page
        after = page[-1].skill_id


def _withheld_text(policy: SkillPolicy, entry: CatalogEntry) -> str:
    reason = withheld_reason(policy, entry)
    return "" if reason is None else f"withheld: {reason}"


@skills.command("show")
@click.argument("skill_id")
@json_option
@click.pass_context
def show_skill(ctx: click.Context, skill_id: str, as_json: bool) -> None:
    """Show one skill: its record, passages, warnings, safety marks and links with evidence.

    \b
    Example:
      skillbus skills show examples:trip-cleaning
    """
    settings = read_settings(ctx)
    with open_catalog(settings) as graph, ExitStack() as stack:
        index = open_index(settings, stack, writable=False)
        policy = make_policy(settings.policy, graph.list_sources())
        data = skill_data(graph, index, skill_id, policy)
    if as_json:
        print_json(data)
    else:
        _print_skill(data)


def _print_skill(data: dict[str, Any]) -> None:
    passages = data.pop("passages", [])
    links = data.pop("links", [])
    data.pop("passage_links", None)
    for name, value in data.items():
        if value in (None, "", [], (), {}):
            continue
        if isinstance(value, list) and isinstance(value[0], dict):
            click.echo(f"{name}:")
            for item in value:
                line = ", ".join(f"{key} {part}" for key, part in item.items())
                click.echo(f"  {escape_terminal_line(line)}")
        else:
            click.echo(f"{name}: {escape_terminal_line(_format_value(value))}")
    _print_links(data["skill_id"], links)
    if passages:
        click.echo("passages (lines, role, tokens, heading):")
    for passage in passages:
        first, last = passage["lines"]
        path = escape_terminal_line(" > ".join(passage["heading_path"]))
        click.echo(f"  {first:>4}-{last:<4} {passage['role']:<14} {passage['tokens']:>5}  {path}")


def _print_links(skill_id: str, links: list[dict[str, Any]]) -> None:
    """By type, most certain first: the arrow, the other skill, and what the link rests on.

    A link that both skills own alike is told once, with an arrow both ways.
    """
    seen = {(link["source"], link["target"], link["type"], link["evidence"]) for link in links}
    ordered = sorted(links, key=lambda link: (link["type"], -link["confidence"], -link["weight"]))
    if links:
        click.echo("links (weight, confidence: evidence):")
    for link in ordered:
        source, target = link["source"], link["target"]
        mutual = (target, source, link["type"], link["evidence"]) in seen
        if skill_id not in (source, target):
            arrow = f"{source} -> {target}"
        elif source == skill_id:
            arrow = f"{'<->' if mutual else ' ->'} {target}"
        elif mutual:
            continue
        else:
            arrow = f" <- {source}"
        owner = "" if link["owner"] in (source, target) else f", by {link['owner']}"
        click.echo(
            f"  {link['type']:<11} {arrow} ({link['weight']:.2f}, {link['confidence']:.2f}{owner}: "
            f"{escape_terminal_line(link['evidence'])})"
        )


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={part}" for key, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@skills.command("remove")
@click.argument("skill_id")
@click.pass_context
def remove_skill(ctx: click.Context, skill_id: str) -> None:
    """Withdraw a skill until its folder changes again; delete it if it was uploaded.

    No file of a directory or a repository is touched.

    \b
    Example:
      skillbus skills remove examples:old-report
    """
    settings = read_settings(ctx)
    with open_catalog(settings) as graph:
        require_entry(graph.get_entries([skill_id]), skill_id)
    outcome = submit_and_wait(settings, SkillRemoved(skill_id=skill_id))
    click.echo(f"{skill_id}: {'removed' if outcome['removed'] else 'was not published'}")


@click.command()
@json_option
@click.pass_context
def failures(ctx: click.Context, as_json: bool) -> None:
    """List skills that could not be taken in, each with file, line and reason."""
    settings = read_settings(ctx)
    with open_catalog(settings) as graph:
        failed = list(_iterate_entries(graph, EntryFilter(state=SkillState.FAILED)))
        policy = make_policy(settings.policy, graph.list_sources())
    if as_json:
        print_json([entry_data(entry, policy) for entry in failed])
        return
    for entry in failed:
        click.echo(f"{entry.skill_id}: {entry.reason}")
    if not failed:
        click.echo("no failures")


def submit_and_wait(settings: Settings, data: SkillRemoved | SourceRemoved) -> dict[str, Any]:
    """Hand an event to `serve` or to a runtime of our own, and wait until it has ended."""
    event = new_event(data, ORIGIN)
    with ExitStack() as stack:
        client = connect_to_serve(settings)
        if client is not None:
            stack.callback(client.close)
            client.post("/v1/events", event.model_dump(mode="json"))
            return _wait(lambda: _outcome_of(client.get(f"/v1/events/{event.id}")))
        backend = stack.enter_context(open_backend(settings, writable=True))
        backend.accept(event)

        def state() -> dict[str, Any] | None:
            job = backend.journal.get_job(event.id)
            return _outcome_of({"state": job.state, "reason": job.reason, "outcome": job.outcome})

        outcome = _wait(state)
        while not settings.distributed and backend.graph.list_awaiting_linking(1):
            time.sleep(0.02)
        return outcome


def _outcome_of(job: dict[str, Any]) -> dict[str, Any] | None:
    if job["state"] == "failed":
        raise PermanentError(job["reason"])
    outcome: dict[str, Any] | None = job["outcome"] if job["state"] == "done" else None
    return outcome


def _wait(state: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    while (outcome := state()) is None:
        time.sleep(0.02)
    return outcome
