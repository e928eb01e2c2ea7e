"""`waivers`: waives findings of the scanner in single skills, with a reason."""

from __future__ import annotations

import click

from workers.audit.log import get_local_principal
from workers.backend.factory import open_backend, open_review_lister, open_revision_reader
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    json_option,
    open_catalog,
    print_line,
    print_list,
    print_result,
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
@audited("waivers.add", "revision", "rule")
def add(revision: str, rule: str, reason: str) -> None:
    """Waive the findings of a rule in a skill.

    Without SEQ, waives those in its published revision. A waiver ends when any file of the skill
    changes. It covers what the rule finds now, and nothing that it finds later. `skillbus findings
    SKILL_ID` lists findings with their rules.

    \b
    Example:
      skillbus waivers add team:deploy download-run --reason "our own installer"
    """
    settings = read_settings()
    with open_revision_reader(settings) as reader:
        skill_id, seq = reader.parse_name(revision)
    with open_backend(settings, writable=True, embeds="nothing") as backend:
        data = backend.waive_findings(skill_id, seq, rule, get_local_principal(), reason)
    findings = format_count(data["findings"], "finding")
    print_result(data, f"waived: {findings} of {rule} in {data['skill_id']}@{data['seq']}")


@waivers.command("list")
@click.option("--source", "source_id", help="Only skills of this source.")
@json_option
def list_waivers(source_id: str | None) -> None:
    """List waivers with their author and reason.

    A waiver has ended if the skill has changed since.
    """
    settings = read_settings()
    with open_review_lister(settings) as lister:
        rows = lister.list_waivers(source_id)
    if not rows:
        with open_catalog(settings) as graph:
            require_source(graph.list_sources(), source_id)
    columns = ("skill_id", "rule", "seq", "state", "by", "at", "reason")
    print_list(rows, columns, "no waivers")


@waivers.command("remove")
@click.argument("skill_id")
@click.argument("rule")
@audited("waivers.remove", "skill_id", "rule")
def remove(skill_id: str, rule: str) -> None:
    """Remove the waivers of a rule for a skill.

    Its findings count again.

    \b
    Example:
      skillbus waivers remove team:deploy download-run
    """
    with open_backend(read_settings(), writable=True, embeds="nothing") as backend:
        backend.remove_waiver(skill_id, rule)
    print_line(f"no longer waived: {rule} in {skill_id}")
