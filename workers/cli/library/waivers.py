"""`waivers`: waives findings of the scanner in single skills, with a reason."""

from __future__ import annotations

import click

from skills.bundle.escaping import escape_terminal_line
from workers.audit.log import get_local_principal
from workers.backend.factory import open_backend, open_review_lister, open_revision_reader
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    json_option,
    open_catalog,
    print_json,
    print_list,
    read_settings,
    require_source,
)


@click.group()
def waivers() -> None:
    """Waive findings in single skills; list and remove waivers.

    A waived finding stays listed, and does not count for the level of the skill.
    """


@waivers.command("add")
@click.argument("revision", metavar="SKILL_ID[@SEQ]")
@click.argument("rule")
@click.option("--reason", required=True, help="Reason; shown with the finding.")
@json_option
@click.pass_context
@audited("waivers.add", "revision", "rule")
def add(ctx: click.Context, revision: str, rule: str, reason: str, as_json: bool) -> None:
    """Waive the findings of a rule in a skill.

    Without SEQ, those in its published revision. A waiver is about the bytes of all files of the
    skill: it ends when any of them changes. It covers what the rule finds now, and nothing that it
    finds later. `skillbus findings SKILL_ID` lists findings with their rules.

    \b
    Example:
      skillbus waivers add team:deploy download-run --reason "our own installer"
    """
    settings = read_settings(ctx)
    with open_revision_reader(settings) as reader:
        skill_id, seq = reader.parse_name(revision)
    with open_backend(settings, writable=True, embeds="nothing") as backend:
        data = backend.waive_findings(skill_id, seq, rule, get_local_principal(), reason)
    if as_json:
        print_json(data)
        return
    name = escape_terminal_line(f"{data['skill_id']}@{data['seq']}")
    click.echo(f"waived: {format_count(data['findings'], 'finding')} of {rule} in {name}")


@waivers.command("list")
@click.option("--source", "source_id", help="Only skills of this source.")
@json_option
@click.pass_context
def list_waivers(ctx: click.Context, source_id: str | None, as_json: bool) -> None:
    """List waivers with their author and reason.

    Waivers of earlier contents have ended.
    """
    settings = read_settings(ctx)
    with open_review_lister(settings) as lister:
        rows = lister.list_waivers(source_id)
    if not rows:
        with open_catalog(settings) as graph:
            require_source(graph.list_sources(), source_id)
    columns = ("skill_id", "rule", "seq", "state", "by", "at", "reason")
    print_list(rows, as_json, columns, "no waivers")


@waivers.command("remove")
@click.argument("skill_id")
@click.argument("rule")
@click.pass_context
@audited("waivers.remove", "skill_id", "rule")
def remove(ctx: click.Context, skill_id: str, rule: str) -> None:
    """Remove the waivers of a rule for a skill.

    Its findings count again.

    \b
    Example:
      skillbus waivers remove team:deploy download-run
    """
    with open_backend(read_settings(ctx), writable=True, embeds="nothing") as backend:
        backend.remove_waiver(skill_id, rule)
    click.echo(f"no longer waived: {escape_terminal_line(f'{rule} in {skill_id}')}")
