"""`skills`: lists, shows, compares and removes skills."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any

import click

from config.settings import Settings
from graph.entry_filter import EntryFilter, HasScripts
from graph.protocol import SkillGraph
from graph.records import CatalogEntry, SkillState
from skills.bundle.escaping import escape_terminal_line, show_invisible
from skills.events import SkillRemoved
from workers.backend.factory import open_skill_reader
from workers.cli.audited import audited
from workers.cli.common import (
    json_option,
    open_catalog,
    print_line,
    print_list,
    print_result,
    print_to_stderr,
    read_settings,
    require_source,
)
from workers.cli.library.revisions import purge, read_revision, show_diff, show_history
from workers.cli.waiting import submit_and_wait
from workers.library.entry_policy import EntryPolicy, PolicyResult
from workers.library.skill_data import entry_data
from workers.library.skill_reader import iterate_entries, require_entry


@click.group()
def skills() -> None:
    """List, show, compare and remove skills."""


skills.add_command(show_history)
skills.add_command(show_diff)
skills.add_command(purge)


@skills.command("list")
@click.option("--source", "source_id", help="Only skills of this source.")
@click.option(
    "--state", type=click.Choice([state.value for state in SkillState]), help="Only this state."
)
@click.option("--name", help="Only published skills of this name.")
@click.option(
    "--has-scripts",
    type=click.Choice([value.value for value in HasScripts]),
    help="Only skills with scripts next to SKILL.md, or without; unknown: published by an earlier "
    "version and not read again yet.",
)
@json_option
def list_skills(
    source_id: str | None, state: str | None, name: str | None, has_scripts: str | None
) -> None:
    """List skills with state, revision and reason of a failure.

    \b
    Examples:
      skillbus skills list --state failed
      skillbus skills list --has-scripts true
    """
    settings = read_settings()
    selection = EntryFilter(
        source_id,
        None if state is None else SkillState(state),
        name,
        has_scripts=None if has_scripts is None else HasScripts(has_scripts),
    )
    with open_catalog(settings) as graph:
        entries = list(iterate_entries(graph, selection))
        if not entries:
            require_source(graph.list_sources(), source_id)
        if selection.has_scripts not in (None, HasScripts.UNKNOWN):
            _note_unknown_scripts(graph, source_id)
        results = _judge(settings, graph, entries)
    rows = [entry_data(entry, results[entry.skill_id]) for entry in entries]
    print_list(rows, ("skill_id", "state", "seq", "name", "reason"), "no skills", _to_cells)


def _to_cells(row: dict[str, Any]) -> tuple[object, ...]:
    reason = f"withheld: {row['withheld']}" if row["withheld"] else row["reason"]
    return row["skill_id"], row["state"], row["seq"], row["name"], reason


def _note_unknown_scripts(graph: SkillGraph, source_id: str | None) -> None:
    unknown = EntryFilter(source_id, SkillState.PUBLISHED, has_scripts=HasScripts.UNKNOWN)
    if graph.list_entries(unknown, "", 1):
        print_to_stderr(
            "some skills are not listed: `skillbus serve` or a worker has yet to read those that "
            "an earlier version published; `--has-scripts unknown` lists them"
        )


def _judge(
    settings: Settings, graph: SkillGraph, entries: Sequence[CatalogEntry]
) -> dict[str, PolicyResult]:
    """Return the policy's results for entries. The index is opened only if an entry needs it."""
    from workers.backend.stores import open_index, open_review_cache, open_review_store

    with ExitStack() as stack:
        reviews = open_review_cache(settings, open_review_store(settings, stack)).get()
        policy = EntryPolicy.of_catalog(
            settings,
            graph,
            lambda keys: open_index(settings, stack, writable=False).get_revisions(keys),
            reviews,
        )
        return policy.judge(entries)


@skills.command("show")
@click.argument("skill_id", metavar="SKILL_ID[@SEQ]")
@json_option
def show_skill(skill_id: str) -> None:
    """Show a skill: record, passages, warnings, findings, links.

    With SKILL_ID@SEQ, an earlier revision with its text; `skills history` lists them.

    \b
    Example:
      skillbus skills show examples:trip-cleaning
    """
    settings = read_settings()
    data = read_revision(settings, skill_id) if "@" in skill_id else None
    if data is None:
        with closing(open_skill_reader(settings)) as reader:
            data = reader.describe_skill(skill_id)
    print_result(data, _print_skill)


def _print_skill(data: dict[str, Any]) -> None:
    passages = data.pop("passages", [])
    links = data.pop("links", [])
    dismissed = data.pop("dismissed_links", [])
    data.pop("passage_links", None)
    data.pop("paged", None)  # the old name of `embedded`
    text = data.pop("text", None)  # of a revision
    for name, value in data.items():
        if value in (None, "", [], (), {}):
            continue
        if isinstance(value, list) and isinstance(value[0], dict):
            click.echo(f"{name}:")
            for item in value:
                print_line(", ".join(f"{key} {part}" for key, part in item.items()), 2)
        else:
            print_line(f"{name}: {_format_value(value)}")
    _print_links(data["skill_id"], links)
    for one in dismissed:
        print_line(
            f"dismissed link: {one['type']}, {one['source']} and {one['target']}: {one['reason']}"
        )
    if passages:
        click.echo("passages (lines, role, tokens, heading):")
    for passage in passages:
        first, last = passage["lines"]
        path = escape_terminal_line(" > ".join(passage["heading_path"]))
        click.echo(f"  {first:>4}-{last:<4} {passage['role']:<14} {passage['tokens']:>5}  {path}")
    if text is not None:
        click.echo("text:")
        for line in text.split("\n"):
            click.echo(show_invisible(line))


def _print_links(skill_id: str, links: list[dict[str, Any]]) -> None:
    """Print links by type, the most confident first: arrow, other skill and evidence.

    A link that exists in both directions is printed once, with a double arrow.
    """
    seen = {(link["source"], link["target"], link["type"], link["evidence"]) for link in links}
    ordered = sorted(links, key=lambda link: (link["type"], -link["confidence"], -link["weight"]))
    if links:
        click.echo("links (weight, confidence: evidence):")
    for link in ordered:
        source, target = link["source"], link["target"]
        mutual = (target, source, link["type"], link["evidence"]) in seen
        first, second = escape_terminal_line(source), escape_terminal_line(target)
        if skill_id not in (source, target):
            arrow = f"{first} -> {second}"
        elif source == skill_id:
            arrow = f"{'<->' if mutual else ' ->'} {second}"
        elif mutual:
            continue
        else:
            arrow = f" <- {first}"
        owner = "" if link["owner"] in (source, target) else f", owned by {link['owner']}"
        grounds = escape_terminal_line(
            f"{link['weight']:.2f}, {link['confidence']:.2f}{owner}: {link['evidence']}"
        )
        click.echo(f"  {link['type']:<11} {arrow} ({grounds})")


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={part}" for key, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@skills.command("remove")
@click.argument("skill_id")
@audited("skills.remove", "skill_id")
def remove_skill(skill_id: str) -> None:
    """Remove a skill until its folder changes again.

    An uploaded skill is deleted. Files of directories and repositories are not touched.

    \b
    Example:
      skillbus skills remove examples:old-report
    """
    settings = read_settings()
    with open_catalog(settings) as graph:
        require_entry(graph, skill_id)
    outcome = submit_and_wait(settings, SkillRemoved(skill_id=skill_id))
    result = "removed" if outcome["removed"] else "was not published, nothing to remove"
    print_line(f"{skill_id}: {result}")
