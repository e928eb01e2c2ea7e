"""`findings`: lists what the scanner finds in the skills of the library."""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import version
from typing import Any

import click

from config.errors import UsageError
from graph.records import CatalogEntry, SkillState
from skills.record import get_source_id
from workers.backend.factory import open_skill_reader
from workers.cli.common import (
    json_option,
    print_json,
    print_list,
    read_settings,
    require_source,
    wants_json,
)
from workers.library.skill_data import explain_unpublished


@click.command()
@click.argument("skill_id", required=False, default="")
@click.option("--rule", default="", help="Only findings of this rule, by its id.")
@click.option(
    "--level",
    type=click.IntRange(1, 3),
    default=1,
    show_default=True,
    help="Only findings of this level or above.",
)
@click.option("--source", "source_id", help="Only skills of this source.")
@click.option("--sarif", is_flag=True, help="Print SARIF 2.1.0, for code scanning services.")
@json_option
def findings(skill_id: str, rule: str, level: int, source_id: str | None, sarif: bool) -> None:
    """List the findings of the scanner in published skills.

    Withheld skills are included. With SKILL_ID, lists the findings of one skill.

    \b
    Examples:
      skillbus findings --level 2
      skillbus findings --source team --sarif > findings.sarif
    """
    from skills.skill_policy import check_rule_ids  # slow to import
    from workers.library.findings import FindingFilter, find_findings, to_sarif

    if sarif and wants_json():
        raise UsageError("--sarif is JSON already: leave out --json")
    check_rule_ids([rule] if rule else [], "--rule")
    with closing(open_skill_reader(read_settings())) as reader:
        named = source_id
        if named is None and ":" in skill_id:
            named = get_source_id(skill_id)
        require_source(reader.list_sources(), named)
        if skill_id:
            _check_skill(reader.require(skill_id), source_id)
        found = list(find_findings(reader, FindingFilter(rule, level, source_id, skill_id)))
    if sarif:
        print_json(to_sarif(found, version("skillbus")))
        return
    rows = [one.describe() for one in found]
    print_list(rows, ("level", "rule", "skill_id", "line", "reason"), "no findings", _to_cells)


def _to_cells(row: dict[str, Any]) -> tuple[object, ...]:
    place = f"{row['file']}:{row['line']}"
    reason = row["reason"] + _describe_exemption(row)
    return row["level"], row["rule"] or row["kind"], row["skill_id"], place, reason


def _check_skill(entry: CatalogEntry, source_id: str | None) -> None:
    """Raise UsageError unless a skill is published and belongs to the source, if one is named."""
    if source_id not in (None, entry.source_id):
        raise UsageError(
            f"{entry.skill_id} is not a skill of source {source_id}; leave out --source"
        )
    if reason := explain_unpublished(entry):
        shown = f"; `skillbus review show {entry.skill_id}` lists its findings"
        raise UsageError(reason + (shown if entry.state is SkillState.HELD else ""))


def _describe_exemption(row: dict[str, Any]) -> str:
    if (waived := row["waived"]) is not None:
        return f" (waived by {waived['by']}: {waived['reason']})"
    return " (suppressed)" if row["suppressed"] else ""
